// What memory graphs reach through memory: a conservative scan that follows device addresses stored in device memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/graph/memory_map.h"

namespace foundry::graph {

// Copies device memory [address, address + into.size()) to `into`.
using ReadMemory = std::function<Status(uint64_t address, std::span<std::byte> into)>;

struct ReachOptions {
  uint64_t chunk_bytes = 4u << 20;        // most memory read at once
  uint64_t max_bytes = UINT64_C(1) << 40;  // `out_of_memory` when more would have to be read
};

// A word in materialized memory that is the address of something in a zone.
struct StoredPointer {
  uint64_t holder;  // address of the word
  uint64_t value;
  uint32_t from, to;  // ranges of the memory map; `to` is kNone for an address without a live range
  uint32_t anchor;    // that covers the value; kNone if none does
};

struct ReachResult {
  std::vector<uint32_t> ranges;          // reached, the roots included: indices, ascending
  std::vector<StoredPointer> rebuilt;    // pointers into rebuilt zones, by holder; they rely on anchors
  uint64_t dangling_words = 0;           // zone addresses without a live range: stale data more often than pointers
  uint64_t scanned_bytes = 0;
};

// Follows addresses from `roots` (indices of live ranges) over live ranges outside the rebuilt zones. Ranges are
// followed whole and singly, so the caller decides the granularity by the ranges it puts into the map.
Result<ReachResult> reach(const MemoryMap& memory, std::span<const uint32_t> roots, const ReadMemory& read,
                          const ReachOptions& options = {});

}  // namespace foundry::graph
