#include "csrc/graph/memory_map.h"

#include <algorithm>

#include "csrc/archive/records.h"
#include "csrc/base/text.h"

namespace foundry::graph {

using archive::kNone;

Result<MemoryMap> MemoryMap::create(std::vector<foundry_zone_info> zones, layout::RangeMap ranges,
                                    std::vector<Anchor> anchors) {
  MemoryMap map;
  std::sort(zones.begin(), zones.end(), [](const auto& a, const auto& b) { return a.base < b.base; });
  for (size_t i = 0; i < zones.size(); ++i) {
    if (zones[i].size > UINT64_MAX - zones[i].base ||
        (i > 0 && zones[i].base - zones[i - 1].base < zones[i - 1].size)) {
      return Error{ErrorKind::invalid, 0,
                   format("zone %s at %s overlaps another one or the end of the address space", zones[i].name,
                          hex(zones[i].base).c_str())};
    }
  }
  map.zones_ = std::move(zones);
  if (!map.zones_.empty()) {
    map.lowest_ = map.zones_.front().base;
    map.highest_ = map.zones_.back().base + map.zones_.back().size;
  }

  map.range_kinds_.reserve(ranges.size());
  for (const foundry_range& range : ranges.ranges()) {
    const uint32_t zone = map.zone_of(range.address);
    if (zone == kNone || map.zones_[zone].slot != range.slot ||
        layout::extent(range) > map.zones_[zone].base + map.zones_[zone].size - range.address) {
      return Error{ErrorKind::invalid, 0,
                   format("the range of %s at %s does not lie in its zone", bytes_text(range.bytes).c_str(),
                          hex(range.address).c_str())};
    }
    map.range_kinds_.push_back(map.zones_[zone].kind);
  }
  map.ranges_ = std::move(ranges);

  // Of anchors that begin together the larger one comes first, so that the last one found is the most specific.
  std::sort(anchors.begin(), anchors.end(), [](const Anchor& a, const Anchor& b) {
    if (a.address != b.address) return a.address < b.address;
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.index < b.index;
  });
  map.anchors_ = std::move(anchors);
  map.anchor_reach_.reserve(map.anchors_.size());
  for (const Anchor& anchor : map.anchors_) {
    const uint64_t end = anchor.bytes > UINT64_MAX - anchor.address ? UINT64_MAX : anchor.address + anchor.bytes;
    map.anchor_reach_.push_back(map.anchor_reach_.empty() ? end : std::max(end, map.anchor_reach_.back()));
  }
  return map;
}

uint32_t MemoryMap::zone_of(uint64_t address) const {
  const auto above = std::upper_bound(zones_.begin(), zones_.end(), address,
                                      [](uint64_t value, const foundry_zone_info& zone) { return value < zone.base; });
  if (above == zones_.begin()) return kNone;
  const auto zone = above - 1;
  return address - zone->base < zone->size ? static_cast<uint32_t>(zone - zones_.begin()) : kNone;
}

uint32_t MemoryMap::range_of(uint64_t address) const {
  if (const auto found = ranges_.find(address)) return static_cast<uint32_t>(*found);
  if (address == 0) return kNone;
  const auto before = ranges_.find(address - 1);
  return before ? static_cast<uint32_t>(*before) : kNone;
}

uint32_t MemoryMap::anchor_of(uint64_t address) const {
  const auto above = std::upper_bound(anchors_.begin(), anchors_.end(), address,
                                      [](uint64_t value, const Anchor& anchor) { return value < anchor.address; });
  uint32_t ends_here = kNone;
  for (size_t i = static_cast<size_t>(above - anchors_.begin()); i-- > 0 && anchor_reach_[i] >= address;) {
    const uint64_t offset = address - anchors_[i].address;
    if (offset < anchors_[i].bytes) return static_cast<uint32_t>(i);
    if (offset == anchors_[i].bytes && ends_here == kNone) ends_here = static_cast<uint32_t>(i);
  }
  return ends_here;
}

}  // namespace foundry::graph
