// Zones and ranges for the tests of the audit and of reach.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "csrc/graph/memory_map.h"

namespace foundry::graph::testing {

inline constexpr uint64_t kWeights = 0x100000000000, kAmbient = 0x140000000000, kZoneBytes = 0x40000000000;
inline constexpr uint64_t kUsedBytes = 0x100000;  // what each zone has handed out
inline constexpr uint32_t kWeightsSlot = 0, kAmbientSlot = 1;

inline foundry_zone_info zone(const char* name, uint32_t slot, uint32_t kind, uint64_t base) {
  foundry_zone_info info{};
  std::snprintf(info.name, sizeof info.name, "%s", name);
  info.slot = slot;
  info.kind = kind;
  info.base = base;
  info.size = kZoneBytes;
  info.used_end = base + kUsedBytes;
  return info;
}

inline std::vector<foundry_zone_info> zones() {
  return {zone("ambient", kAmbientSlot, FOUNDRY_ZONE_AMBIENT, kAmbient),
          zone("weights", kWeightsSlot, FOUNDRY_ZONE_REBUILT, kWeights)};
}

inline foundry_range range(uint64_t address, uint64_t bytes, uint64_t ordinal, uint32_t state = FOUNDRY_RANGE_LIVE) {
  foundry_range out{};
  out.address = address;
  out.bytes = bytes;
  out.ordinal = ordinal;
  out.slot = address < kAmbient ? kWeightsSlot : kAmbientSlot;
  out.state = state;
  return out;
}

inline MemoryMap memory_map(std::vector<foundry_range> ranges, std::vector<Anchor> anchors = {}) {
  auto map = MemoryMap::create(zones(), layout::RangeMap::build(std::move(ranges)).value(), std::move(anchors));
  EXPECT_TRUE(map.ok()) << map.error().text;
  return std::move(map).value();
}

}  // namespace foundry::graph::testing
