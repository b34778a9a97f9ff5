#include "csrc/session/memory_plan.h"

#include <algorithm>

#include "csrc/layout/range_map.h"

namespace foundry::session {
namespace {

// The parts of one live allocation: its framework blocks, and what lies between them.
void divide(const foundry_range& range, uint32_t zone_kind, std::span<const FrameworkBlock> blocks,
            std::vector<foundry_range>& out) {
  const uint64_t end = range.address + layout::extent(range);
  uint64_t position = range.address;
  const auto emit = [&](uint64_t until, uint32_t state) {
    if (until <= position) return;
    foundry_range part = range;
    part.address = position;
    part.bytes = until - position;
    part.mapped_bytes = 0;
    part.state = state;
    out.push_back(part);
    position = until;
  };
  const auto first =
      std::lower_bound(blocks.begin(), blocks.end(), range.address,
                       [](const FrameworkBlock& block, uint64_t address) { return block.address < address; });
  for (auto block = first; block != blocks.end() && block->address < end; ++block) {
    emit(block->address, range.state);
    const bool freed = !block->active && zone_kind != FOUNDRY_ZONE_GRAPHS;
    emit(std::min(end, block->address + block->bytes), freed ? uint32_t{FOUNDRY_RANGE_QUARANTINED} : range.state);
  }
  emit(end, range.state);
}

}  // namespace

const foundry_zone_info& MemoryState::zone_of(const foundry_range& range) const {
  return map.zones()[map.zone_of(range.address)];
}

bool MemoryState::has_content(const foundry_range& range) const {
  // Materialized: an earlier LOAD of this process put it there.
  const bool present = range.state == FOUNDRY_RANGE_LIVE || range.state == FOUNDRY_RANGE_MATERIALIZED;
  return zone_of(range).kind != FOUNDRY_ZONE_GRAPHS && present;
}

Result<MemoryState> read_memory_state(Process& process, int device, std::span<const FrameworkBlock> blocks,
                                      std::vector<graph::Anchor> anchors) {
  std::vector<FrameworkBlock> sorted(blocks.begin(), blocks.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const FrameworkBlock& a, const FrameworkBlock& b) { return a.address < b.address; });

  std::vector<foundry_zone_info> zones;
  for (const foundry_zone_info& zone : process.zones()) {
    if (zone.device == device) zones.push_back(zone);
  }
  std::sort(zones.begin(), zones.end(),
            [](const foundry_zone_info& a, const foundry_zone_info& b) { return a.base < b.base; });

  MemoryState state;
  std::vector<foundry_range> ranges;
  for (const foundry_zone_info& zone : zones) {
    std::vector<foundry_range> list = process.ranges(zone.slot);
    std::sort(list.begin(), list.end(),
              [](const foundry_range& a, const foundry_range& b) { return a.ordinal < b.ordinal; });
    for (const foundry_range& range : list) {
      if (range.state == FOUNDRY_RANGE_LIVE) {
        divide(range, zone.kind, sorted, ranges);
      } else {
        ranges.push_back(range);
      }
    }
    state.allocations.push_back(std::move(list));
  }
  FOUNDRY_ASSIGN(layout::RangeMap range_map, layout::RangeMap::build(std::move(ranges)));
  FOUNDRY_ASSIGN(state.map, graph::MemoryMap::create(std::move(zones), std::move(range_map), std::move(anchors)));
  return state;
}

std::vector<archive::MappedRecord> plan_mapping(const MemoryState& memory, std::span<const uint32_t> reached) {
  // Reached indices ascend, and so do the map's addresses: neighbours meet in order.
  std::vector<archive::MappedRecord> mapped;
  for (const uint32_t index : reached) {
    const foundry_range& range = memory.map.ranges()[index];
    const uint32_t zone_index = memory.map.zone_of(range.address);
    const foundry_zone_info& zone = memory.map.zones()[zone_index];
    if (zone.kind == FOUNDRY_ZONE_REBUILT) continue;
    const uint64_t page = zone.granularity;
    const uint64_t begin = range.address / page * page;
    const uint64_t end = (range.address + layout::extent(range) + page - 1) / page * page;
    if (!mapped.empty() && mapped.back().zone == zone_index && begin <= mapped.back().address + mapped.back().bytes) {
      archive::MappedRecord& last = mapped.back();
      last.bytes = std::max(last.address + last.bytes, end) - last.address;
    } else {
      mapped.push_back({begin, end - begin, zone_index, 0});
    }
  }
  return mapped;
}

}  // namespace foundry::session
