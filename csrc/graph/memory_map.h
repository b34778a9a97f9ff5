// The memory of a process at the end of SAVE, by address: zones, ranges in them and the tensors that anchor them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/result.h"

namespace foundry::graph {

struct MemoryZone {
  std::string name;
  uint64_t base = 0, size = 0;
  uint32_t kind = 0;  // foundry_zone_kind
};

// An allocation, or a block of a framework's allocator inside one.
struct MemoryRange {
  uint64_t address = 0, bytes = 0;
  uint64_t ordinal = 0;  // of the allocation, for messages
  uint32_t zone = 0;     // index into the map's zones
  uint32_t state = 0;    // foundry_range_state
};

struct Anchor {
  uint64_t address = 0, bytes = 0;
  uint32_t index = 0;  // the caller's: PointerRecord::target
};

class MemoryMap {
 public:
  // Sorts its input. Zones must not overlap; ranges must not overlap and must lie in their zone; anchors may overlap
  // (views of one storage). `invalid` names the two that do.
  static Result<MemoryMap> create(std::vector<MemoryZone> zones, std::vector<MemoryRange> ranges,
                                  std::vector<Anchor> anchors);

  std::span<const MemoryZone> zones() const { return zones_; }
  std::span<const MemoryRange> ranges() const { return ranges_; }
  std::span<const Anchor> anchors() const { return anchors_; }

  // Each returns archive::kNone where there is none.
  uint32_t zone_of(uint64_t address) const;
  // The range that covers the address; one that begins there wins over one that ends there, and the address just
  // behind a range (an end pointer) belongs to it where no other range begins.
  uint32_t range_of(uint64_t address) const;
  // The last range that begins at or below the address, and the first that begins above it.
  uint32_t range_before(uint64_t address) const;
  uint32_t range_after(uint64_t address) const;
  // Index into anchors(): one that covers the address (or ends there, for an end pointer).
  uint32_t anchor_of(uint64_t address) const;
  // Lowest zone base and highest zone end: a quick test before zone_of.
  bool near_zones(uint64_t address) const { return address >= lowest_ && address < highest_; }

 private:
  std::vector<MemoryZone> zones_;
  std::vector<MemoryRange> ranges_;
  std::vector<Anchor> anchors_;
  std::vector<uint64_t> anchor_reach_;  // highest end of anchors[0..i]
  uint64_t lowest_ = 0, highest_ = 0;
};

}  // namespace foundry::graph
