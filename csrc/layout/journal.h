// The journal: an append-only log of allocations, frees, image loads and state changes of one process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/abi/foundry_abi.h"
#include "csrc/layout/stacks.h"

namespace foundry::layout {

// Thread-safe. Appending copies one record of 56 bytes into a chunk under an uncontended lock; chunks never move.
class Journal {
 public:
  static constexpr size_t kChunkEvents = 4096;

  // Off: append() does nothing, ordinals go on counting (ranges need them).
  void set_recording(bool on) { recording_.store(on, std::memory_order_relaxed); }
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  // Distinct call stacks; off unless enabled.
  Stacks& stacks() { return stacks_; }
  // The calling thread's stack for foundry_event.stack, 0 where none is wanted. Not under a lock of the caller's own:
  // it takes microseconds.
  uint32_t stack() noexcept { return recording() ? stacks_.take() : 0; }

  // The next number of the process-wide order, from 1; 0 never occurs. An allocation takes one, its ALLOC and FREE
  // events carry it; every other event takes one of its own.
  uint64_t next_ordinal() { return ordinal_.fetch_add(1, std::memory_order_relaxed); }

  // `event.entry_point` must be a string that lives as long as the process; null is stored as "".
  void append(foundry_event event) noexcept;

  // Copies events from position `first` on; returns how many there are from there on (foundry_abi.events).
  size_t copy(uint64_t first, foundry_event* out, size_t capacity) const;
  uint64_t size() const;
  // Events lost because the host had no memory for them.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> recording_{true};
  std::atomic<uint64_t> ordinal_{1};
  std::atomic<uint64_t> dropped_{0};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<foundry_event[]>> chunks_;
  uint64_t size_ = 0;
  Stacks stacks_;
};

// The kernel's id of the calling thread, as events and ranges record it.
uint32_t thread_id();

}  // namespace foundry::layout
