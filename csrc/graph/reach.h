// What memory graphs reach through memory: a conservative scan that follows device addresses stored in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/graph/memory_map.h"

namespace foundry::graph {

// Copies device memory [address, address + into.size()) to `into`.
using ReadMemory = std::function<Status(uint64_t address, std::span<std::byte> into)>;

// Calls back for the 8-byte aligned words of [begin, end), both multiples of 8, that lie in the window of a zone or
// just behind it; others do no harm. In any order.
using FoundWord = std::function<void(uint64_t holder, uint64_t value)>;
using ScanMemory = std::function<Status(uint64_t begin, uint64_t end, const FoundWord& found)>;

struct ReachOptions {
  uint64_t chunk_bytes = 4u << 20;         // most memory read at once
  uint64_t max_bytes = UINT64_C(1) << 40;  // `out_of_memory` when more would have to be read
};

// A word in materialized memory that is the address of something in a rebuilt zone.
struct StoredPointer {
  uint64_t holder;  // address of the word
  uint64_t value;
  uint32_t from, to;  // indices into memory.ranges()
  uint32_t anchor;    // Anchor::index of one that covers the value; archive::kNone if none does
};

struct ReachResult {
  std::vector<uint32_t> ranges;        // reached, the roots included: indices into memory.ranges(), ascending
  std::vector<StoredPointer> rebuilt;  // by holder; LOAD is right only if anchors cover them
  uint64_t dangling_words = 0;         // zone addresses without a live range: stale data more often than pointers
  uint64_t scanned_bytes = 0;
};

// Follows addresses from `roots` (live ranges outside rebuilt zones) over such ranges. Each range is followed whole and
// by itself, so the caller sets the granularity by the ranges that the map holds. The result does not depend on the
// order of anything but addresses.
Result<ReachResult> reach(const MemoryMap& memory, std::span<const uint32_t> roots, const ScanMemory& scan,
                          const ReachOptions& options = {});
// The same through the host.
Result<ReachResult> reach(const MemoryMap& memory, std::span<const uint32_t> roots, const ReadMemory& read,
                          const ReachOptions& options = {});

}  // namespace foundry::graph
