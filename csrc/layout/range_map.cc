#include "csrc/layout/range_map.h"

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"

namespace foundry::layout {

Result<RangeMap> RangeMap::build(std::vector<foundry_range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const foundry_range& a, const foundry_range& b) { return a.address < b.address; });
  uint64_t end = 0;
  for (const foundry_range& range : ranges) {
    const uint64_t bytes = extent(range);
    if (range.bytes == 0 || bytes > UINT64_MAX - range.address) {
      return Error{ErrorKind::corrupt, 0,
                   format("range %s of %llu bytes is empty or wraps around", hex(range.address).c_str(),
                          static_cast<unsigned long long>(bytes))};
    }
    if (range.address < end) {
      return Error{
          ErrorKind::corrupt, 0,
          format("range %s (allocation %llu) overlaps the one before it, which ends at %s", hex(range.address).c_str(),
                 static_cast<unsigned long long>(range.ordinal), hex(end).c_str())};
    }
    end = range.address + bytes;
  }
  RangeMap map;
  map.ranges_ = std::move(ranges);
  return map;
}

Result<RangeMap> RangeMap::of(const foundry_abi& owner) {
  foundry_zone_info zones[FOUNDRY_MAX_ZONES];
  const size_t count = std::min<size_t>(owner.zones(zones, FOUNDRY_MAX_ZONES), FOUNDRY_MAX_ZONES);
  std::vector<foundry_range> all;
  for (size_t i = 0; i < count; ++i) {
    std::vector<foundry_range> part;
    // Other threads may allocate between asking how many and reading them.
    for (size_t there = owner.ranges(zones[i].slot, nullptr, 0); there > part.size();) {
      part.resize(there);
      there = owner.ranges(zones[i].slot, part.data(), part.size());
      if (there < part.size()) part.resize(there);
    }
    all.insert(all.end(), part.begin(), part.end());
  }
  return build(std::move(all));
}

std::optional<size_t> RangeMap::find(uint64_t address) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                      [](uint64_t a, const foundry_range& range) { return a < range.address; });
  if (after == ranges_.begin()) return std::nullopt;
  const auto candidate = after - 1;
  if (address - candidate->address >= extent(*candidate)) return std::nullopt;
  return static_cast<size_t>(candidate - ranges_.begin());
}

std::optional<size_t> RangeMap::nearest(uint64_t address) const {
  if (ranges_.empty()) return std::nullopt;
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                      [](uint64_t a, const foundry_range& range) { return a < range.address; });
  if (after == ranges_.begin()) return 0;
  const auto before = after - 1;
  const size_t index = static_cast<size_t>(before - ranges_.begin());
  const uint64_t into = address - before->address;
  if (after == ranges_.end() || into < extent(*before)) return index;
  return into - extent(*before) < after->address - address ? index : index + 1;
}

}  // namespace foundry::layout
