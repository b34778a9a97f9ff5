// LOAD: room in the C library's heap, made before the driver asks for it.
//
// An exec takes about 8 KB of host memory a node (driver 580, H200), which the driver allocates in small pieces while
// it holds its lock. In a heap that belongs to a thread every new page is one call of mprotect() and one fault; in a
// heap that has grown at once, of huge pages where the system allows them (transparent_hugepage: madvise or always),
// most of that is gone.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace foundry::graph {

// Works on the heap of the thread that constructs it (each thread has one of its own, as a rule).
class HeapWarmup {
 public:
  // Makes room for `bytes`, or for as much as there is; 0.1 ms for 30 MiB. Less than a huge page is not worth it. What
  // nobody uses takes no memory, but for one huge page in 30 MiB. The C library takes blocks of up to 31 MiB from heaps
  // from then on, in the whole process, as after any free() of such a block.
  explicit HeapWarmup(uint64_t bytes);
  // The memory that is free then may go back to the system.
  ~HeapWarmup() = default;
  HeapWarmup(HeapWarmup&&) = default;
  HeapWarmup& operator=(HeapWarmup&&) = delete;

  uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  using Piece = std::unique_ptr<void, Free>;

  std::vector<Piece> pins_;  // what is left of every piece: the heap cannot be given back below it
  uint64_t bytes_ = 0;
};

}  // namespace foundry::graph
