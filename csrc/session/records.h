// Records that several files of an archive have, made from what the owner of the zones says.
#pragma once

#include "csrc/abi/foundry_abi.h"
#include "csrc/archive/strings.h"

namespace foundry::session {

inline archive::ZoneRecord zone_record(const foundry_zone_info& zone, archive::StringTable& strings) {
  archive::ZoneRecord record{};
  record.name = strings.add(zone.name);
  record.kind = zone.kind;
  record.granularity = zone.granularity;
  record.base = zone.base;
  record.size = zone.size;
  record.used_end = zone.used_end;
  return record;
}

}  // namespace foundry::session
