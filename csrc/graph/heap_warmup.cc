#include "csrc/graph/heap_warmup.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace foundry::graph {
namespace {

// What is freed in one piece of up to 32 MiB makes the C library take pieces of that size from its heap from then on,
// and keep twice as much of it (mallopt(3), dynamic threshold). Two pieces fit into a thread's heap of 64 MiB.
constexpr size_t kThresholdBytes = size_t{31} << 20;
constexpr size_t kPieceBytes = size_t{30} << 20;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPinBytes = 2048;  // more than what threads keep in caches

// The whole pages of a range.
std::pair<uintptr_t, uintptr_t> pages_of(const void* begin, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(begin) + bytes) / page * page;
  return {first, std::max(first, end)};
}

}  // namespace

HeapWarmup::HeapWarmup(uint64_t bytes) {
  if (bytes < kHugePage) return;
  void* volatile threshold = std::malloc(kThresholdBytes);  // volatile: a pair that nobody uses would be left out
  std::free(threshold);
  while (bytes_ < bytes) {
    const size_t size = static_cast<size_t>(std::min<uint64_t>(bytes - bytes_, kPieceBytes));
    Piece piece(std::malloc(size));
    if (!piece) break;
    bytes_ += size;
    const auto [first, end] = pages_of(piece.get(), size);
    madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);  // where the system has none, small ones do
    pins_.push_back(std::move(piece));
  }
  for (Piece& piece : pins_) {
    // In place, so that the beginning of every piece stays taken.
    if (void* pin = std::realloc(piece.get(), kPinBytes)) {
      static_cast<void>(piece.release());
      piece.reset(pin);
    }
  }
}

}  // namespace foundry::graph
