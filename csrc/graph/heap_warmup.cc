#include "csrc/graph/heap_warmup.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

namespace foundry::graph {
namespace {

// Smaller than what the C library asks the system for piece by piece (M_MMAP_THRESHOLD, at least 128 KiB as a rule).
constexpr size_t kPieceBytes = size_t{64} << 10;
constexpr size_t kPiecesPerPin = 16;
constexpr size_t kPinBytes = 2048;  // more than what threads keep in caches: it comes from behind the pieces

void touch(std::byte* begin, size_t bytes, size_t page) {
  const auto first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(begin) + bytes) / page * page;
  if (end > first && madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE) == 0) return;
  for (uintptr_t at = first; at < end; at += page) *reinterpret_cast<volatile std::byte*>(at) = std::byte{0};
}

}  // namespace

HeapWarmup::HeapWarmup(uint64_t bytes, const std::function<bool(uint64_t)>& stop) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<Piece> pieces;
  while (bytes_ < bytes && !stop(bytes_)) {
    Piece piece(std::malloc(kPieceBytes));
    if (!piece) break;
    touch(static_cast<std::byte*>(piece.get()), kPieceBytes, page);
    pieces.push_back(std::move(piece));
    bytes_ += kPieceBytes;
    if (pieces.size() % kPiecesPerPin == 0) pins_.emplace_back(std::malloc(kPinBytes));
  }
  pins_.emplace_back(std::malloc(kPinBytes));
}

}  // namespace foundry::graph
