#include "csrc/layout/zone.h"

#include <iterator>

namespace foundry::layout {
namespace {

// First element of an address-ordered map whose [key, key+length) intersects [begin, end).
template <class Map, class Length>
typename Map::iterator first_within(Map& map, uint64_t begin, uint64_t end, Length length) {
  auto at = map.upper_bound(begin);
  if (at != map.begin() && begin - std::prev(at)->first < length(std::prev(at)->second)) return std::prev(at);
  return at != map.end() && at->first < end ? at : map.end();
}

uint64_t span_of(const RangeRecord& range) {
  return range.mapped_bytes > range.bytes ? range.mapped_bytes : range.bytes;
}

}  // namespace

std::map<uint64_t, Mapping>::iterator Zone::mapped_within(uint64_t begin, uint64_t end) {
  return first_within(mappings, begin, end, [](const Mapping& mapping) { return mapping.bytes; });
}

std::map<uint64_t, RangeRecord>::iterator Zone::range_within(uint64_t begin, uint64_t end) {
  return first_within(ranges, begin, end, span_of);
}

Result<Zone*> Zones::Books::open_zone(uint32_t slot) {
  Zone* zone = at(slot);
  if (zone == nullptr) return Error{ErrorKind::invalid, 0, format("no zone is open in slot %u", slot)};
  if (zone->closing) {
    return Error{ErrorKind::state, 0,
                 zone->label() + " could not be closed completely and takes no more calls but close"};
  }
  return zone;
}

Zone* Zones::Books::covering(uint64_t address) {
  for (const auto& zone : zones) {
    if (zone && address >= zone->base && address - zone->base < zone->size) return zone.get();
  }
  return nullptr;
}

std::string Zones::Books::describe(uint64_t address) {
  Zone* zone = covering(address);
  const std::string value = hex(address);
  if (zone == nullptr) return value + " lies in no zone";
  const auto at = zone->range_within(address, address + 1);
  if (at == zone->ranges.end()) {
    const auto after = zone->ranges.upper_bound(address);
    std::string text = format("%s lies in %s where nothing was allocated", value.c_str(), zone->label().c_str());
    if (after != zone->ranges.begin()) {
      const RangeRecord& before = std::prev(after)->second;
      text += format("; the allocation before it is %llu, %s at %s", static_cast<unsigned long long>(before.ordinal),
                     bytes_text(before.bytes).c_str(), hex(before.address).c_str());
    }
    return text;
  }
  const RangeRecord& range = at->second;
  const uint64_t into = address - range.address;
  std::string text = into == 0
                         ? value + " is"
                         : format("%s lies %llu bytes into", value.c_str(), static_cast<unsigned long long>(into));
  text += format(" allocation %llu (%s, thread %u) of %s, ", static_cast<unsigned long long>(range.ordinal),
                 bytes_text(range.bytes).c_str(), range.thread, zone->label().c_str());
  switch (range.state) {
    case FOUNDRY_RANGE_LIVE:
      text += "live";
      break;
    case FOUNDRY_RANGE_MATERIALIZED:
      text += "mapped for recorded content";
      break;
    default:
      text += format("freed at step %llu by thread %u, %s", static_cast<unsigned long long>(range.freed_at),
                     range.freed_by, range.state == FOUNDRY_RANGE_QUARANTINED ? "still mapped" : "unmapped since");
  }
  return text;
}

}  // namespace foundry::layout
