// The memory of a process at the end of SAVE, by address: zones, the ranges in them, the tensors that anchor them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/result.h"
#include "csrc/layout/range_map.h"

namespace foundry::graph {

struct Anchor {
  uint64_t address = 0, bytes = 0;
  uint32_t index = 0;  // the caller's: becomes PointerRecord::target
};

class MemoryMap {
 public:
  // Ranges may be allocations or finer: blocks of a framework's allocator in place of the allocations that hold them.
  // Anchors may overlap (views of one storage). `invalid` where two zones overlap or a range lies outside its zone.
  static Result<MemoryMap> create(std::vector<foundry_zone_info> zones, layout::RangeMap ranges,
                                  std::vector<Anchor> anchors);

  std::span<const foundry_zone_info> zones() const { return zones_; }
  const layout::RangeMap& ranges() const { return ranges_; }
  std::span<const Anchor> anchors() const { return anchors_; }

  // A quick test before the others: false for every address that lies in no zone.
  bool near_zones(uint64_t address) const { return address >= lowest_ && address <= highest_; }

  // Indices into zones(), ranges() and anchors(); archive::kNone where there is none. The address just behind a range
  // or an anchor (an end pointer) belongs to it unless another one begins there.
  uint32_t zone_of(uint64_t address) const;
  uint32_t range_of(uint64_t address) const;
  uint32_t anchor_of(uint64_t address) const;
  // Kind of the zone that holds a range.
  uint32_t kind_of_range(uint32_t range) const { return range_kinds_[range]; }
  // LOAD's engine code does not make this range again: it is mapped with its content if graphs reach it.
  bool is_materialized(uint32_t range) const { return kind_of_range(range) != FOUNDRY_ZONE_REBUILT; }

 private:
  std::vector<foundry_zone_info> zones_;  // by base
  layout::RangeMap ranges_;
  std::vector<uint32_t> range_kinds_;
  std::vector<Anchor> anchors_;         // by address
  std::vector<uint64_t> anchor_reach_;  // highest end of anchors_[0..i]
  uint64_t lowest_ = UINT64_MAX, highest_ = 0;
};

}  // namespace foundry::graph
