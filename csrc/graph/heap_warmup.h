// LOAD: memory of the C library's heap, fetched from the system before the driver asks for it.
//
// An exec takes about 8 KB of host memory a node (driver 580, H200), which the driver allocates in small pieces, and
// the first touch of every page is a fault, taken while the driver's lock is held. Instantiating 67 graphs of 25,441
// nodes takes 172 ms in a fresh process and 75 ms once the memory is there.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

namespace foundry::graph {

// Works on the heap of the thread that constructs it (each thread has one of its own, as a rule).
class HeapWarmup {
 public:
  // Returns when `bytes` are there, when there is no more, or soon after `stop`, which is told how many there are, says
  // so.
  HeapWarmup(uint64_t bytes, const std::function<bool(uint64_t)>& stop);
  // The memory that is free then may go back to the system.
  ~HeapWarmup() = default;
  HeapWarmup(const HeapWarmup&) = delete;
  HeapWarmup& operator=(const HeapWarmup&) = delete;

  uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  using Piece = std::unique_ptr<void, Free>;

  std::vector<Piece> pins_;  // between what was freed: the heap cannot be trimmed below them
  uint64_t bytes_ = 0;
};

}  // namespace foundry::graph
