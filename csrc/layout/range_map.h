// A sorted, immutable snapshot of the ranges of all zones: which allocation does an address lie in?
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/result.h"

namespace foundry::layout {

// Bytes from `address` on that belong to a range: what was asked for, and the rest of its last page where it has its
// own mapping (kernels may read there without a fault, so a pointer there is no dangling one).
inline uint64_t extent(const foundry_range& range) {
  return range.mapped_bytes > range.bytes ? range.mapped_bytes : range.bytes;
}

// Live, quarantined, released and materialized ranges alike; ask `state` of what was found.
class RangeMap {
 public:
  RangeMap() = default;

  // Takes the ranges of any number of zones in any order. `corrupt` where two ranges overlap, one is empty or one wraps
  // around the end of the address space: then they are no owner's list.
  static Result<RangeMap> build(std::vector<foundry_range> ranges);
  // All ranges of all zones of an owner, as they are now.
  static Result<RangeMap> of(const foundry_abi& owner);

  // The range that covers `address` (index into ranges()).
  std::optional<size_t> find(uint64_t address) const;
  // The range that covers `address` or else is nearest to it; none only if the map is empty.
  std::optional<size_t> nearest(uint64_t address) const;

  const std::vector<foundry_range>& ranges() const { return ranges_; }
  const foundry_range& operator[](size_t index) const { return ranges_[index]; }
  size_t size() const { return ranges_.size(); }

 private:
  std::vector<foundry_range> ranges_;  // by address
};

}  // namespace foundry::layout
