// Memory leaves a zone: frees, quarantine, what captures put off, pins.
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/layout/zone.h"
#include "csrc/layout/zones.h"

namespace foundry::layout {

// Carries out what captures put off. What fails stays for the next time; the call that happened to come by is not at
// fault, nor has it to wait where another thread is waiting for the device already.
void Zones::settle() {
  if (books_->due.load() == 0 || capturing()) return;
  const std::unique_lock release_lock(books_->release_mutex, std::try_to_lock);
  if (!release_lock.owns_lock()) return;
  Release which;
  which.eager_only = true;
  const Status done = release_locked(which);
  if (!done.ok() && done.error().kind != ErrorKind::state) diagnoses_.add(done.error().text);
}

Status Zones::release(const Release& which) {
  const std::lock_guard release_lock(books_->release_mutex);
  return release_locked(which);
}

Status Zones::release_locked(const Release& which) {
  if (capturing()) {
    return Error{ErrorKind::state, 0, "a stream capture is running; freed memory can be unmapped when it has ended"};
  }
  std::vector<std::pair<uint64_t, int>> chosen;  // step of the free, device
  std::set<int> devices;
  std::vector<Plain> plain;
  {
    const std::lock_guard lock(books_->mutex);
    uint64_t coming = 0;
    std::map<uint64_t, uint64_t> taken;  // mapping -> parts
    for (const auto& [freed_at, where] : books_->freed) {
      if (coming >= which.enough) break;
      Zone* zone = books_->at(where.slot);
      const RangeRecord& range = zone->ranges.at(where.address);
      if (range.pinned != 0 || (which.eager_only && !range.eager) ||
          (which.slot != FOUNDRY_NO_ZONE && which.slot != where.slot) ||
          (which.device >= 0 && which.device != zone->device)) {
        continue;
      }
      chosen.emplace_back(freed_at, zone->device);
      devices.insert(zone->device);
      const Mapping& mapping = zone->mappings.at(range.mapping);
      if (++taken[range.mapping] == mapping.parts) coming += mapping.bytes;
    }
    plain.swap(books_->plain_freed);
    for (const Plain& one : plain) devices.insert(one.device);
  }
  Status first = success();
  const auto note = [&first](Status status) {
    if (first.ok() && !status.ok()) first = std::move(status);
  };
  std::set<int> idle;
  for (const int device : devices) {
    Status waited = synchronize(driver_, device);
    if (waited.ok()) {
      idle.insert(device);
    } else {
      note(std::move(waited).error().within(format("freed memory of device %d stays mapped", device)));
    }
  }
  std::erase_if(plain, [&](const Plain& one) {
    if (!idle.contains(one.device)) return false;
    const DeviceScope scope(driver_, one.device);
    const CUresult code = scope.status().ok() ? driver_.cuMemFree(one.address) : CUDA_ERROR_INVALID_CONTEXT;
    if (code != CUDA_SUCCESS) note(driver_.error(code, "cuMemFree"));
    --books_->due;
    return true;
  });
  const std::lock_guard lock(books_->mutex);
  books_->plain_freed.insert(books_->plain_freed.end(), plain.begin(), plain.end());
  for (const auto& [freed_at, device] : chosen) {
    if (idle.contains(device)) note(unmap_freed(freed_at));
  }
  return first;
}

// The device has finished with the range: its mapping loses a part, and goes with the last one. Called with the lock.
Status Zones::unmap_freed(uint64_t freed_at) {
  const auto entry = books_->freed.find(freed_at);
  if (entry == books_->freed.end()) return success();
  Zone& zone = *books_->at(entry->second.slot);
  const auto at = zone.ranges.find(entry->second.address);
  RangeRecord& range = at->second;
  if (range.pinned != 0) return success();
  const auto mapping = zone.mappings.find(range.mapping);
  if (mapping->second.parts == 1) {
    const DeviceScope scope(driver_, zone.device);
    FOUNDRY_TRY(scope.status());
    Status unmapped = unmap_pages(driver_, mapping->first, mapping->second.bytes);
    if (!unmapped.ok()) return std::move(unmapped).error().within(books_->describe(range.address));
    zone.mapped_bytes -= mapping->second.bytes;
    if (mapping->first == zone.chunk) zone.chunk = zone.chunk_next = zone.chunk_end = 0;
    zone.mappings.erase(mapping);
  } else {
    --mapping->second.parts;
  }
  books_->freed.erase(entry);
  if (range.eager) --books_->due;
  zone.quarantined_bytes -= range.bytes;
  range.state = FOUNDRY_RANGE_RELEASED;
  if (range.unmapped) zone.ranges.erase(at);
  return success();
}

Status Zones::free(uint64_t address, const FreeRequest& request) {
  settle();
  const uint32_t stack = journal_.stack();
  Release mine;
  mine.eager_only = true;
  {
    const std::lock_guard lock(books_->mutex);
    Zone* zone = books_->covering(address);
    if (zone == nullptr) {
      const auto plain = books_->plain.find(address);
      if (plain == books_->plain.end()) {
        return Error{ErrorKind::invalid, 0, "free: " + books_->describe(address) + "; Foundry did not allocate it"};
      }
      const Plain one = plain->second;
      books_->plain_freed.push_back(one);
      books_->plain.erase(plain);
      ++books_->due;
      mine.device = one.device;
      journal_.append({one.ordinal, address, one.bytes, request.stream, FOUNDRY_EVENT_FREE, FOUNDRY_NO_ZONE,
                       thread_id(), stack, request.entry_point});
    } else {
      const auto at = zone->ranges.find(address);
      if (at == zone->ranges.end() || at->second.state != FOUNDRY_RANGE_LIVE) {
        return Error{ErrorKind::invalid, 0, "free: " + books_->describe(address) + "; it is no live allocation"};
      }
      RangeRecord& range = at->second;
      const uint64_t step = journal_.next_ordinal();
      books_->freed.emplace(step, Freed{zone->slot, address});
      range.state = FOUNDRY_RANGE_QUARANTINED;
      range.freed_at = step;
      range.freed_by = thread_id();
      range.eager = zone->kind == FOUNDRY_ZONE_REBUILT || sealed();
      zone->live_bytes -= range.bytes;
      zone->quarantined_bytes += range.bytes;
      ++zone->frees;
      journal_.append({range.ordinal, address, range.bytes, request.stream, FOUNDRY_EVENT_FREE, zone->slot,
                       range.freed_by, stack, request.entry_point});
      if (!range.eager || range.pinned != 0) return success();
      ++books_->due;
      mine.device = zone->device;
    }
  }
  Status released = release(mine);
  // Put off by a capture: settle() does it.
  if (!released.ok() && released.error().kind == ErrorKind::state) return success();
  return released;
}

Status Zones::unmap(uint64_t address) {
  settle();
  Release mine;
  mine.eager_only = true;
  {
    const std::lock_guard lock(books_->mutex);
    Zone* zone = books_->covering(address);
    if (zone == nullptr) return Error{ErrorKind::invalid, 0, "unmap: " + books_->describe(address)};
    const auto at = zone->ranges.find(address);
    if (at == zone->ranges.end() || at->second.state != FOUNDRY_RANGE_MATERIALIZED) {
      return Error{ErrorKind::invalid, 0,
                   "unmap: " + books_->describe(address) + "; it is no start of a mapping for recorded content"};
    }
    RangeRecord& range = at->second;
    const uint64_t step = journal_.next_ordinal();
    books_->freed.emplace(step, Freed{zone->slot, address});
    range.state = FOUNDRY_RANGE_QUARANTINED;
    range.freed_at = step;
    range.freed_by = thread_id();
    range.eager = range.unmapped = true;
    zone->live_bytes -= range.bytes;
    zone->quarantined_bytes += range.bytes;
    if (range.pinned != 0) return success();
    ++books_->due;
    mine.device = zone->device;
  }
  Status released = release(mine);
  if (!released.ok() && released.error().kind == ErrorKind::state) return success();
  return released;
}

Status Zones::pin(uint64_t address, uint64_t bytes, bool pinned) {
  settle();
  bool due = false;
  {
    const std::lock_guard lock(books_->mutex);
    Zone* zone = books_->covering(address);
    if (zone == nullptr || bytes == 0 || bytes > zone->end() - address) {
      return Error{ErrorKind::invalid, 0,
                   format("pin: %llu bytes at %s do not lie within one zone", static_cast<unsigned long long>(bytes),
                          hex(address).c_str())};
    }
    const uint64_t end = address + bytes;
    bool any = false;
    for (auto at = zone->range_within(address, end); at != zone->ranges.end() && at->first < end; ++at) {
      RangeRecord& range = at->second;
      if (range.state == FOUNDRY_RANGE_RELEASED) continue;
      if (pinned) {
        any = true;
        if (++range.pinned == 1 && range.state == FOUNDRY_RANGE_QUARANTINED && range.eager) --books_->due;
      } else if (range.pinned != 0) {
        any = true;
        if (--range.pinned == 0 && range.state == FOUNDRY_RANGE_QUARANTINED && range.eager) {
          ++books_->due;
          due = true;
        }
      }
    }
    if (!any) {
      return Error{ErrorKind::invalid, 0,
                   format("%s: %s; no mapped allocation there %s", pinned ? "pin" : "unpin",
                          books_->describe(address).c_str(), pinned ? "could be pinned" : "is pinned")};
    }
  }
  if (due) settle();
  return success();
}

Status Zones::release_quarantine(uint32_t slot_or_no_zone) {
  Release which;
  which.slot = slot_or_no_zone;
  if (slot_or_no_zone != FOUNDRY_NO_ZONE) {
    const std::lock_guard lock(books_->mutex);
    FOUNDRY_TRY(books_->open_zone(slot_or_no_zone));
  }
  return release(which);
}

}  // namespace foundry::layout
