// Call stacks of journal entries: taken as addresses, kept once each, as offsets into named files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/abi/foundry_abi.h"
#include "csrc/layout/modules.h"

namespace foundry::layout {

// Thread-safe. Nothing is resolved to names here; that needs files and time, and is left to whoever shows a stack.
class Stacks {
 public:
  static constexpr size_t kDeepest = 64;        // innermost native frames that are kept
  static constexpr size_t kDeepestPython = 32;  // innermost Python frames that are kept
  static constexpr uint32_t kMost = 1u << 16;   // distinct stacks; of later ones none is kept
  static constexpr size_t kLongestName = 240;   // bytes of a Python function's or file's name

  void enable(bool native, bool python) {
    python_.store(python, std::memory_order_relaxed);
    native_.store(native, std::memory_order_relaxed);
  }
  // Who can see Python frames; null: nobody. Asked without a lock held.
  void set_python_walker(foundry_python_walker walker) { walker_.store(walker, std::memory_order_release); }

  // The calling thread's stack as 1 + its place in the list; 0 where off, or where it cannot be kept.
  uint32_t take() noexcept;
  // The same for a stack that is given: `addresses` of calls, innermost first.
  uint32_t keep(const uint64_t* addresses, size_t count, const foundry_python_frame* python,
                size_t python_count) noexcept;

  size_t copy(foundry_stack* out, size_t capacity) const;
  size_t copy(foundry_frame* out, size_t capacity) const;
  size_t copy(foundry_python_frame* out, size_t capacity) const;
  size_t copy(foundry_module* out, size_t capacity) const;
  // Stacks that were taken but not kept.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  uint32_t add(uint64_t hash, const std::vector<uint64_t>& key, size_t native);
  uint32_t text(const char* text);

  std::atomic<bool> native_{false}, python_{false};
  std::atomic<foundry_python_walker> walker_{nullptr};
  std::atomic<uint64_t> dropped_{0};

  mutable std::mutex mutex_;
  // A stack's key: its native addresses, then three words for each Python frame. Keys lie end to end in `keys_`.
  struct Entry {
    uint64_t first_word;
    uint32_t words;
  };
  std::vector<uint64_t> keys_;
  std::vector<Entry> entries_;
  boost::unordered_flat_map<uint64_t, uint32_t> by_hash_;
  std::vector<uint64_t> key_;  // of the stack being looked up
  std::vector<foundry_stack> stacks_;
  std::vector<foundry_frame> frames_;
  std::vector<foundry_python_frame> python_frames_;
  std::deque<std::string> texts_;
  boost::unordered_flat_map<std::string_view, uint32_t> text_numbers_;
  Modules modules_;
};

}  // namespace foundry::layout
