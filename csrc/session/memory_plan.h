// SAVE: which memory exists, at the granularity of the framework's blocks, and which of it an archive must carry.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/archive/records.h"
#include "csrc/base/result.h"
#include "csrc/graph/memory_map.h"
#include "csrc/session/process.h"

namespace foundry::session {

// What the framework's allocator says of a part of its segments.
struct FrameworkBlock {
  uint64_t address = 0, bytes = 0;
  bool active = false;
};

// All zones of one device with their ranges; segments that a framework divides are divided into its blocks. A block
// that the framework has freed counts as quarantined memory, except in the graphs zone: there it is an intermediate
// result of some capture.
struct MemoryState {
  graph::MemoryMap map;
  std::vector<std::vector<foundry_range>> allocations;  // whole ones, per zone of map.zones(), by ordinal

  const foundry_zone_info& zone_of(const foundry_range& range) const;

  // True where the range's bytes must be kept: everything but graph-private memory (captures only allocate there, no
  // kernel runs), and what the framework has freed.
  bool has_content(const foundry_range& range) const;
};

Result<MemoryState> read_memory_state(Process& process, int device, std::span<const FrameworkBlock> blocks,
                                      std::vector<graph::Anchor> anchors);

// Reached ranges outside the rebuilt zones, rounded to the zone's granularity and merged: what LOAD maps.
std::vector<archive::MappedRecord> plan_mapping(const MemoryState& memory, std::span<const uint32_t> reached);

}  // namespace foundry::session
