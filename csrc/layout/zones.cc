#include "csrc/layout/zones.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "csrc/base/text.h"
#include "csrc/layout/zone.h"

namespace foundry::layout {
namespace {

// A hexadecimal number from the environment; `fallback` where the variable is unset or empty.
Result<uint64_t> environment_hex(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 16);
  if (errno != 0 || end == text || *end != '\0' || *text == '-') {
    return Error{ErrorKind::invalid, errno, format("%s='%s' is no hexadecimal number", name, text)};
  }
  return static_cast<uint64_t>(value);
}

Status check_name(const std::string& name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
  if (!name.empty() && name.size() < FOUNDRY_ZONE_NAME_BYTES && printable) return success();
  return Error{
      ErrorKind::invalid, 0,
      format("a zone name has 1 to %d printable bytes; this one has %zu", FOUNDRY_ZONE_NAME_BYTES - 1, name.size())};
}

}  // namespace

Result<Windows> Windows::from_environment() {
  Windows windows;
  FOUNDRY_ASSIGN(windows.base, environment_hex("FOUNDRY_BASE", kDefaultBase));
  FOUNDRY_ASSIGN(windows.bytes, environment_hex("FOUNDRY_WINDOW", kDefaultWindow));
  if (windows.base % kSmallestPage != 0 || windows.bytes % kSmallestPage != 0 || windows.base == 0 ||
      windows.bytes == 0 || windows.count() == 0) {
    return Error{
        ErrorKind::invalid, 0,
        format("FOUNDRY_BASE=%s and FOUNDRY_WINDOW=%s leave no room: both are multiples of 2 MiB above 0, and a "
               "window must end below %s",
               hex(windows.base).c_str(), hex(windows.bytes).c_str(), hex(kAddressLimit).c_str())};
  }
  return windows;
}

uint32_t Windows::count() const {
  if (bytes == 0 || base >= kAddressLimit) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>((kAddressLimit - base) / bytes, FOUNDRY_MAX_ZONES));
}

Zones::Zones(driver::Driver driver, Journal& journal, Diagnoses& diagnoses, Windows windows)
    : driver_(driver), journal_(journal), diagnoses_(diagnoses), windows_(windows), books_(std::make_unique<Books>()) {
  for (auto& slot : ambient_) slot.store(FOUNDRY_NO_ZONE);
}

Zones::~Zones() = default;

Result<uint32_t> Zones::open(int device, const std::string& name, uint32_t kind, uint64_t base, uint64_t size) {
  settle();
  FOUNDRY_TRY(check_name(name));
  if (kind < FOUNDRY_ZONE_REBUILT || kind > FOUNDRY_ZONE_PRIVATE) {
    return Error{ErrorKind::invalid, 0, format("zone '%s': there is no zone kind %u", name.c_str(), kind)};
  }
  const std::lock_guard lock(books_->mutex);
  uint32_t slot = FOUNDRY_NO_ZONE;
  for (uint32_t i = 0; i < FOUNDRY_MAX_ZONES; ++i) {
    const Zone* zone = books_->at(i);
    if (zone == nullptr) {
      slot = std::min(slot, i);
      continue;
    }
    if (zone->device != device || zone->name != name) continue;
    FOUNDRY_TRY(books_->open_zone(i));
    const std::optional<uint64_t> asked = round_up(size, zone->pages.granularity);
    if (zone->kind != kind || (base != 0 && zone->base != base) || (size != 0 && asked != zone->size)) {
      return Error{ErrorKind::invalid, 0,
                   format("%s is open already as kind %u, %s at %s, and was now asked for as kind %u, %s at %s",
                          zone->label().c_str(), zone->kind, bytes_text(zone->size).c_str(), hex(zone->base).c_str(),
                          kind, bytes_text(size).c_str(), hex(base).c_str())};
    }
    return i;
  }
  const std::string label = format("zone '%s' on device %d", name.c_str(), device);
  if (slot == FOUNDRY_NO_ZONE) {
    return Error{ErrorKind::out_of_memory, 0, format("%s: all %u zones are in use", label.c_str(), FOUNDRY_MAX_ZONES)};
  }

  const DeviceScope scope(driver_, device);
  if (!scope.status().ok()) return Error(scope.status().error()).within(label);
  const driver::RelaxedCaptureMode relaxed(driver_);
  auto zone = std::make_unique<Zone>();
  FOUNDRY_ASSIGN(zone->pages, page_kind(driver_, scope.device()));
  zone->slot = slot;
  zone->kind = kind;
  zone->device = device;
  zone->name = name;
  const uint64_t granularity = zone->pages.granularity;
  const std::optional<uint64_t> whole = round_up(size == 0 ? windows_.bytes : size, granularity);
  if (!whole || base % granularity != 0 || (base != 0 && (base >= kAddressLimit || *whole > kAddressLimit - base)) ||
      (base == 0 && *whole > windows_.bytes)) {
    return Error{ErrorKind::invalid, 0,
                 format("%s: a window of %s at %s is not whole pages of %s below %s, or larger than %s", label.c_str(),
                        bytes_text(size).c_str(), hex(base).c_str(), bytes_text(granularity).c_str(),
                        hex(kAddressLimit).c_str(), bytes_text(windows_.bytes).c_str())};
  }
  zone->size = *whole;

  const auto open_window_at = [&](uint64_t address) -> const Zone* {
    for (const auto& other : books_->zones) {
      if (other && address < other->end() && other->base < address + *whole) return other.get();
    }
    return nullptr;
  };
  if (base != 0) {
    if (const Zone* other = open_window_at(base)) {
      return Error{ErrorKind::mismatch, 0,
                   format("%s: its recorded window at %s is taken by %s", label.c_str(), hex(base).c_str(),
                          other->label().c_str())};
    }
    Status reserved = reserve_window(driver_, base, *whole, granularity);
    if (!reserved.ok()) return std::move(reserved).error().within(label);
    zone->base = base;
  } else {
    Error last{ErrorKind::out_of_memory, 0, "other zones take all windows"};
    for (uint32_t i = 0; i < windows_.count() && zone->base == 0; ++i) {
      const uint64_t address = windows_.base + i * windows_.bytes;
      if (address % granularity != 0 || open_window_at(address) != nullptr) continue;
      Status reserved = reserve_window(driver_, address, *whole, granularity);
      if (reserved.ok()) {
        zone->base = address;
      } else {
        last = std::move(reserved).error();
      }
    }
    if (zone->base == 0) return std::move(last).within(label + ": no window is free");
  }
  zone->cursor = zone->base;

  // Where this thread has no context, none may exist but for this scope; the zone needs it to last.
  if (scope.uses_primary()) {
    CUcontext primary = nullptr;
    const CUresult code = driver_.cuDevicePrimaryCtxRetain(&primary, scope.device());
    if (code != CUDA_SUCCESS) {
      Error error = driver_.error(code, "cuDevicePrimaryCtxRetain").within(label);
      FOUNDRY_CU(driver_, cuMemAddressFree, zone->base, zone->size);
      return error;
    }
    zone->holds_primary = true;
  }
  bounds_[slot].begin.store(zone->base);
  bounds_[slot].end.store(zone->end());
  books_->zones[slot] = std::move(zone);
  return slot;
}

Status Zones::close(uint32_t slot) {
  if (slot >= FOUNDRY_MAX_ZONES) return Error{ErrorKind::invalid, 0, format("there is no zone slot %u", slot)};
  const std::lock_guard release_lock(books_->release_mutex);
  int device = 0;
  std::string label;
  {
    const std::lock_guard lock(books_->mutex);
    const Zone* zone = books_->at(slot);
    if (zone == nullptr) return success();
    device = zone->device;
    label = zone->label();
  }
  if (capturing()) {
    return Error{ErrorKind::state, 0, label + " cannot be closed while a stream capture runs; end the capture first"};
  }
  Status first = synchronize(driver_, device);
  if (!first.ok() && first.error().kind == ErrorKind::state) return std::move(first).error().within(label);
  const auto note = [&first](Status status) {
    if (first.ok() && !status.ok()) first = std::move(status);
  };
  const auto checked = [this](CUresult code, const char* call) {
    return code == CUDA_SUCCESS ? success() : Status(driver_.error(code, call));
  };

  const std::lock_guard lock(books_->mutex);
  Zone& zone = *books_->at(slot);  // only close() removes one, and it holds release_mutex
  const DeviceScope scope(driver_, device);
  note(scope.status());
  const driver::RelaxedCaptureMode relaxed(driver_);
  zone.closing = true;
  for (auto& routed : ambient_) {
    uint32_t expected = slot;
    routed.compare_exchange_strong(expected, FOUNDRY_NO_ZONE);
  }
  std::erase_if(books_->freed, [&](const auto& entry) {
    if (entry.second.slot != slot) return false;
    const RangeRecord& range = zone.ranges.at(entry.second.address);
    if (range.eager && range.pinned == 0) --books_->due;
    return true;
  });
  zone.ranges.clear();
  zone.live_bytes = zone.quarantined_bytes = 0;
  for (auto at = zone.mappings.begin(); at != zone.mappings.end();) {
    Status unmapped = unmap_pages(driver_, at->first, at->second.bytes);
    if (!unmapped.ok()) {
      note(std::move(unmapped));
      ++at;
      continue;
    }
    zone.mapped_bytes -= at->second.bytes;
    at = zone.mappings.erase(at);
  }
  bool gone = false;
  if (zone.mappings.empty()) {
    const CUresult code = driver_.cuMemAddressFree(zone.base, zone.size);
    gone = code == CUDA_SUCCESS;
    note(checked(code, "cuMemAddressFree"));
  }
  if (gone) {
    if (zone.holds_primary) {
      note(checked(driver_.cuDevicePrimaryCtxRelease(zone.pages.properties.location.id), "cuDevicePrimaryCtxRelease"));
    }
    bounds_[slot].end.store(0);
    bounds_[slot].begin.store(0);
    books_->zones[slot].reset();
  }
  if (!first.ok()) return std::move(first).error().within(label + (gone ? " (closed)" : " (not closed completely)"));
  return success();
}

Status Zones::close_all() {
  Status first = success();
  for (uint32_t slot = 0; slot < FOUNDRY_MAX_ZONES; ++slot) {
    Status closed = close(slot);
    if (first.ok() && !closed.ok()) first = std::move(closed);
  }
  return first;
}

Status Zones::expect(uint32_t slot, std::span<const foundry_expectation> list, uint64_t used_end) {
  const std::lock_guard lock(books_->mutex);
  FOUNDRY_ASSIGN(Zone * zone, books_->open_zone(slot));
  if (zone->kind != FOUNDRY_ZONE_REBUILT) {
    return Error{ErrorKind::invalid, 0, zone->label() + " is no rebuilt zone; only those expect recorded allocations"};
  }
  if (zone->expecting || zone->allocations != 0) {
    return Error{ErrorKind::state, 0,
                 zone->label() + " has expectations or allocations already; they are given once, before the first one"};
  }
  if (used_end < zone->base || used_end > zone->end() || used_end % zone->pages.granularity != 0) {
    return Error{ErrorKind::corrupt, 0,
                 format("%s: the recorded end %s is no page border of its window %s to %s", zone->label().c_str(),
                        hex(used_end).c_str(), hex(zone->base).c_str(), hex(zone->end()).c_str())};
  }
  auto expected = Expectations::build(list, zone->pages.granularity, zone->base, used_end);
  if (!expected.ok()) return std::move(expected).error().within(zone->label());
  zone->expected = std::move(expected).value();
  zone->expecting = true;
  for (const auto& [address, mapping] : zone->mappings) zone->expected.claim_within(address, address + mapping.bytes);
  zone->cursor = std::max(zone->cursor, used_end);
  return success();
}

size_t Zones::zones(foundry_zone_info* out, size_t capacity) const {
  const std::lock_guard lock(books_->mutex);
  size_t count = 0;
  for (const auto& zone : books_->zones) {
    if (!zone) continue;
    if (count < capacity) {
      foundry_zone_info& info = out[count];
      info = {};
      std::memcpy(info.name, zone->name.c_str(), zone->name.size());
      info.slot = zone->slot;
      info.kind = zone->kind;
      info.device = zone->device;
      info.granularity = static_cast<uint32_t>(zone->pages.granularity);
      info.base = zone->base;
      info.size = zone->size;
      info.used_end = zone->cursor;
      info.live_bytes = zone->live_bytes;
      info.quarantined_bytes = zone->quarantined_bytes;
      info.mapped_bytes = zone->mapped_bytes;
      info.allocations = zone->allocations;
      info.frees = zone->frees;
    }
    ++count;
  }
  return count;
}

size_t Zones::ranges(uint32_t slot, foundry_range* out, size_t capacity) const {
  const std::lock_guard lock(books_->mutex);
  const Zone* zone = books_->at(slot);
  if (zone == nullptr) return 0;
  size_t count = 0;
  for (const auto& [address, range] : zone->ranges) {
    if (count == capacity) break;
    out[count++] = range;
  }
  return zone->ranges.size();
}

size_t Zones::unclaimed(uint32_t slot, foundry_expectation* out, size_t capacity) const {
  const std::lock_guard lock(books_->mutex);
  const Zone* zone = books_->at(slot);
  return zone == nullptr ? 0 : zone->expected.unclaimed(out, capacity);
}

bool Zones::in_zone(uint64_t address, uint32_t* slot) const {
  for (uint32_t i = 0; i < FOUNDRY_MAX_ZONES; ++i) {
    if (address >= bounds_[i].begin.load(std::memory_order_relaxed) &&
        address < bounds_[i].end.load(std::memory_order_acquire)) {
      if (slot != nullptr) *slot = i;
      return true;
    }
  }
  return false;
}

std::optional<foundry_range> Zones::find(uint64_t address) const {
  const std::lock_guard lock(books_->mutex);
  Zone* zone = books_->covering(address);
  if (zone == nullptr) return std::nullopt;
  const auto at = zone->range_within(address, address + 1);
  if (at == zone->ranges.end()) return std::nullopt;
  return at->second;
}

std::string Zones::describe(uint64_t address) const {
  const std::lock_guard lock(books_->mutex);
  return books_->describe(address);
}

Status Zones::set_ambient(int device, uint32_t slot_or_no_zone) {
  if (device < 0 || static_cast<size_t>(device) >= kMaxDevices) {
    return Error{ErrorKind::invalid, 0, format("ambient allocations of device %d cannot be routed", device)};
  }
  const std::lock_guard lock(books_->mutex);
  if (slot_or_no_zone != FOUNDRY_NO_ZONE) {
    FOUNDRY_ASSIGN(const Zone* zone, books_->open_zone(slot_or_no_zone));
    if (zone->kind != FOUNDRY_ZONE_AMBIENT || zone->device != device) {
      return Error{ErrorKind::invalid, 0, format("%s is no ambient zone of device %d", zone->label().c_str(), device)};
    }
  }
  ambient_[static_cast<size_t>(device)].store(slot_or_no_zone);
  return success();
}

uint32_t Zones::ambient(int device) const {
  if (sealed() || device < 0 || static_cast<size_t>(device) >= kMaxDevices) return FOUNDRY_NO_ZONE;
  return ambient_[static_cast<size_t>(device)].load();
}

void Zones::capture_delta(int delta) {
  if (delta > 0) {
    const std::lock_guard wait(books_->release_mutex);
    captures_ += delta;
    return;
  }
  int before = captures_.load();
  while (!captures_.compare_exchange_weak(before, std::max(before + delta, 0))) {
  }
  if (before + delta < 0)
    diagnoses_.add("more stream captures ended than began; frees may have been carried out early");
}

}  // namespace foundry::layout
