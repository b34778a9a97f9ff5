// The books of the zones: plain data and the bookkeeping that needs no driver. Only zones.cc and memory.cc include
// this.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/text.h"
#include "csrc/layout/expectations.h"
#include "csrc/layout/pages.h"
#include "csrc/layout/zones.h"

namespace foundry::layout {

struct RangeRecord : foundry_range {
  uint64_t mapping = 0;   // address of the mapping it lies in
  uint64_t freed_at = 0;  // step of its free in the process-wide order; 0: never
  uint32_t freed_by = 0;  // thread
  bool eager = false;     // freed: unmap as soon as no capture runs, without waiting for release_quarantine
  bool unmapped = false;  // by unmap(): the record goes with the mapping
};

struct Mapping {
  uint64_t bytes = 0;
  uint64_t parts = 0;  // ranges in it that are not released
};

struct Zone {
  uint32_t slot = 0, kind = 0;
  int device = 0;
  std::string name;
  PageKind pages;
  uint64_t base = 0, size = 0;
  uint64_t cursor = 0;         // first address never handed out
  bool holds_primary = false;  // a count on the device's primary context
  bool closing = false;        // close() failed half-way
  bool expecting = false;
  std::map<uint64_t, RangeRecord> ranges;  // by address; released ones stay as history
  std::map<uint64_t, Mapping> mappings;
  Expectations expected;
  uint64_t chunk = 0, chunk_next = 0, chunk_end = 0;  // where small allocations go; 0: no chunk open
  uint64_t live_bytes = 0, mapped_bytes = 0, quarantined_bytes = 0, allocations = 0, frees = 0;

  uint64_t end() const { return base + size; }
  std::string label() const { return format("zone '%s' on device %d", name.c_str(), device); }
  // The first mapping that intersects [begin, end), or mappings.end().
  std::map<uint64_t, Mapping>::iterator mapped_within(uint64_t begin, uint64_t end);
  // The first range that intersects [begin, end), or ranges.end().
  std::map<uint64_t, RangeRecord>::iterator range_within(uint64_t begin, uint64_t end);
};

// A freed range that is still mapped.
struct Freed {
  uint32_t slot;
  uint64_t address;
};

// Plain driver memory that was given out after sealing.
struct Plain {
  uint64_t address = 0, bytes = 0, ordinal = 0;
  int device = 0;
};

struct Zones::Books {
  // Held while waiting for a device and unmapping; taken before `mutex`.
  std::mutex release_mutex;
  mutable std::mutex mutex;
  std::array<std::unique_ptr<Zone>, FOUNDRY_MAX_ZONES> zones;
  std::map<uint64_t, Freed> freed;                   // by step of the free: oldest first
  boost::unordered_flat_map<uint64_t, Plain> plain;  // by address
  std::vector<Plain> plain_freed;                    // put off by a capture
  // Frees that wait for nothing but the end of a capture; read without the lock.
  std::atomic<size_t> due{0};

  Zone* at(uint32_t slot) { return slot < zones.size() ? zones[slot].get() : nullptr; }
  Result<Zone*> open_zone(uint32_t slot);
  Zone* covering(uint64_t address);
  std::string describe(uint64_t address);
};

struct Zones::Release {
  uint32_t slot = FOUNDRY_NO_ZONE;  // of this zone only
  int device = -1;                  // of this device only
  bool eager_only = false;
  uint64_t enough = UINT64_MAX;  // stop once so many bytes of physical memory come free
};

}  // namespace foundry::layout
