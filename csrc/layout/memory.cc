// Memory comes into a zone: where allocations go, and mappings for recorded content.
#include <algorithm>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/layout/zone.h"
#include "csrc/layout/zones.h"

namespace foundry::layout {
namespace {

bool power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// The driver has no memory left, as opposed to a zone without addresses.
bool device_is_full(const Error& error) {
  return error.kind == ErrorKind::out_of_memory && error.code == CUDA_ERROR_OUT_OF_MEMORY;
}

// Maps [address, address+bytes) of the zone and books it without any range in it.
Status add_mapping(const driver::Driver& driver, Zone& zone, uint64_t address, uint64_t bytes) {
  const auto clash = zone.mapped_within(address, address + bytes);
  if (clash != zone.mappings.end()) {
    return Error{ErrorKind::invalid, 0,
                 format("%s at %s would overlap the mapping of %s at %s", bytes_text(bytes).c_str(),
                        hex(address).c_str(), bytes_text(clash->second.bytes).c_str(), hex(clash->first).c_str())};
  }
  const auto booked = zone.mappings.emplace(address, Mapping{bytes, 0}).first;
  const DeviceScope scope(driver, zone.device);
  const driver::RelaxedCaptureMode relaxed(driver);
  Status mapped = scope.status().ok() ? map_pages(driver, zone.pages, address, bytes) : scope.status();
  if (!mapped.ok()) {
    zone.mappings.erase(booked);
    return std::move(mapped).error().within(format("%s at %s", bytes_text(bytes).c_str(), hex(address).c_str()));
  }
  zone.mapped_bytes += bytes;
  return success();
}

// Where `bytes` would go behind everything handed out so far.
Result<uint64_t> next_address(const Zone& zone, uint64_t bytes, uint64_t alignment) {
  const std::optional<uint64_t> start = round_up(zone.cursor, std::max(zone.pages.granularity, alignment));
  if (!start || *start > zone.end() || bytes > zone.end() - *start) {
    return Error{
        ErrorKind::out_of_memory, 0,
        format("no addresses are left for %s: its window of %s at %s is used up to %s", bytes_text(bytes).c_str(),
               bytes_text(zone.size).c_str(), hex(zone.base).c_str(), hex(zone.cursor).c_str())};
  }
  return *start;
}

struct Place {
  uint64_t address = 0;
  uint64_t mapping = 0;
  uint64_t mapped_bytes = 0;  // 0: a part of a chunk
};

Result<Place> place_small(const driver::Driver& driver, Zone& zone, const AllocRequest& request) {
  const uint64_t alignment = std::max(request.alignment, kSmallAlignment);
  std::optional<uint64_t> start = round_up(zone.chunk_next, alignment);
  if (zone.chunk == 0 || !start || *start > zone.chunk_end || request.bytes > zone.chunk_end - *start) {
    const uint64_t bytes = zone.pages.granularity;
    FOUNDRY_ASSIGN(const uint64_t address, next_address(zone, bytes, 0));
    FOUNDRY_TRY(add_mapping(driver, zone, address, bytes));
    zone.chunk = address;
    zone.chunk_end = zone.cursor = address + bytes;
    start = address;
  }
  zone.chunk_next = *start + request.bytes;
  return Place{*start, zone.chunk, 0};
}

Result<Place> place(const driver::Driver& driver, Zone& zone, const AllocRequest& request) {
  const bool shares = zone.kind == FOUNDRY_ZONE_AMBIENT || request.shares_pages;
  if (shares && request.bytes < kSmallLimit && request.alignment <= zone.pages.granularity) {
    return place_small(driver, zone, request);
  }
  const std::optional<uint64_t> bytes = round_up(request.bytes, zone.pages.granularity);
  if (!bytes) return next_address(zone, request.bytes, request.alignment).error();
  const std::optional<size_t> recorded = zone.expected.candidate(request.bytes, request.alignment);
  uint64_t address = 0;
  if (recorded) {
    address = zone.expected.address(*recorded);
  } else {
    FOUNDRY_ASSIGN(address, next_address(zone, *bytes, request.alignment));
  }
  FOUNDRY_TRY(add_mapping(driver, zone, address, *bytes));
  if (recorded) zone.expected.claim(*recorded);
  zone.cursor = std::max(zone.cursor, address + *bytes);
  return Place{address, address, *bytes};
}

}  // namespace

Result<uint64_t> Zones::alloc(uint32_t slot, const AllocRequest& request) {
  settle();
  if (request.bytes == 0 || (request.alignment != 0 && !power_of_two(request.alignment))) {
    return Error{
        ErrorKind::invalid, 0,
        format("an allocation of %llu bytes with alignment %llu: bytes must not be 0, alignment 0 or a power of two",
               static_cast<unsigned long long>(request.bytes), static_cast<unsigned long long>(request.alignment))};
  }
  const uint32_t stack = journal_.stack();
  if (sealed()) return alloc_plain(slot, request, stack);
  for (bool again = false;; again = true) {
    Release enough;
    Error error;
    {
      const std::lock_guard lock(books_->mutex);
      FOUNDRY_ASSIGN(Zone * zone, books_->open_zone(slot));
      Result<Place> placed = place(driver_, *zone, request);
      if (placed.ok()) {
        RangeRecord range = {};
        range.address = placed->address;
        range.bytes = request.bytes;
        range.mapped_bytes = placed->mapped_bytes;
        range.ordinal = journal_.next_ordinal();
        range.stream = request.stream;
        range.slot = slot;
        range.state = FOUNDRY_RANGE_LIVE;
        range.thread = thread_id();
        range.mapping = placed->mapping;
        zone->ranges.insert_or_assign(range.address, range);
        ++zone->mappings.at(range.mapping).parts;
        zone->live_bytes += range.bytes;
        ++zone->allocations;
        journal_.append({range.ordinal, range.address, range.bytes, range.stream, FOUNDRY_EVENT_ALLOC, slot,
                         range.thread, stack, request.entry_point});
        return range.address;
      }
      error = std::move(placed).error().within(zone->label());
      enough.device = zone->device;
      enough.enough = round_up(request.bytes, zone->pages.granularity).value_or(request.bytes);
      if (again || !device_is_full(error) || books_->freed.empty()) return error;
    }
    const Status released = release(enough);
    if (!released.ok()) {
      error.text += "; freed memory could not be given back first: " + released.error().text;
      return error;
    }
  }
}

Result<uint64_t> Zones::alloc_plain(uint32_t slot, const AllocRequest& request, uint32_t stack) {
  const std::lock_guard lock(books_->mutex);
  FOUNDRY_ASSIGN(const Zone* zone, books_->open_zone(slot));
  // cuMemAlloc promises no more than 256 bytes.
  if (request.alignment > 256) {
    return Error{ErrorKind::unsupported, 0,
                 format("%s is sealed and plain device memory cannot be aligned to %llu bytes", zone->label().c_str(),
                        static_cast<unsigned long long>(request.alignment))};
  }
  const DeviceScope scope(driver_, zone->device);
  FOUNDRY_TRY(scope.status());
  const driver::RelaxedCaptureMode relaxed(driver_);
  CUdeviceptr address = 0;
  FOUNDRY_CU(driver_, cuMemAlloc, &address, request.bytes);
  const uint64_t ordinal = journal_.next_ordinal();
  books_->plain.insert_or_assign(address, Plain{address, request.bytes, ordinal, zone->device});
  journal_.append({ordinal, address, request.bytes, request.stream, FOUNDRY_EVENT_ALLOC, FOUNDRY_NO_ZONE, thread_id(),
                   stack, request.entry_point});
  return address;
}

Status Zones::map(uint32_t slot, uint64_t address, uint64_t bytes) {
  settle();
  for (bool again = false;; again = true) {
    Release enough;
    Error error;
    {
      const std::lock_guard lock(books_->mutex);
      FOUNDRY_ASSIGN(Zone * zone, books_->open_zone(slot));
      const uint64_t granularity = zone->pages.granularity;
      if (bytes == 0 || bytes % granularity != 0 || address % granularity != 0 || address < zone->base ||
          address > zone->end() || bytes > zone->end() - address) {
        return Error{ErrorKind::invalid, 0,
                     format("%s: %llu bytes at %s are not whole pages of %s between %s and %s", zone->label().c_str(),
                            static_cast<unsigned long long>(bytes), hex(address).c_str(),
                            bytes_text(granularity).c_str(), hex(zone->base).c_str(), hex(zone->end()).c_str())};
      }
      const uint64_t end = address + bytes;
      if (const auto clash = zone->mapped_within(address, end); clash != zone->mappings.end()) {
        return Error{ErrorKind::invalid, 0,
                     format("%s: %s at %s cannot be mapped: %s", zone->label().c_str(), bytes_text(bytes).c_str(),
                            hex(address).c_str(), books_->describe(std::max(address, clash->first)).c_str())};
      }
      Status mapped = add_mapping(driver_, *zone, address, bytes);
      if (mapped.ok()) {
        // Everything still recorded there is released history; the addresses have a new meaning now.
        for (auto old = zone->range_within(address, end); old != zone->ranges.end() && old->first < end;) {
          old = zone->ranges.erase(old);
        }
        RangeRecord range = {};
        range.address = range.mapping = address;
        range.bytes = range.mapped_bytes = bytes;
        range.ordinal = journal_.next_ordinal();
        range.slot = slot;
        range.state = FOUNDRY_RANGE_MATERIALIZED;
        range.thread = thread_id();
        zone->ranges.emplace(address, range);
        zone->mappings.at(address).parts = 1;
        zone->live_bytes += bytes;
        zone->cursor = std::max(zone->cursor, end);
        zone->expected.claim_within(address, end);
        return success();
      }
      error = std::move(mapped).error().within(zone->label());
      enough.device = zone->device;
      enough.enough = bytes;
      if (again || !device_is_full(error) || books_->freed.empty()) return error;
    }
    const Status released = release(enough);
    if (!released.ok()) {
      error.text += "; freed memory could not be given back first: " + released.error().text;
      return error;
    }
  }
}

}  // namespace foundry::layout
