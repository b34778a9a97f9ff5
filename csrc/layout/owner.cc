#include "csrc/layout/owner.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>

namespace foundry::layout {
namespace {

struct Owner {
  std::mutex mutex;  // making the zones, and what is said before they exist
  OwnerConfig config;
  foundry_abi table = {};
  std::atomic<Zones*> zones{nullptr};
  Journal journal;
  Diagnoses diagnoses;
  int early_captures = 0;
  bool early_seal = false;
};

// Never destroyed: other libraries' exit handlers may still free memory through us.
Owner& owner() {
  static Owner* const instance = new Owner;
  return *instance;
}

Error no_zone() { return Error{ErrorKind::invalid, 0, "no zone is open in this process"}; }

template <class Body>
int guarded(foundry_error* error, Body body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? 0 : fill(error, status.error());
  } catch (const std::bad_alloc&) {
    return fill(error, Error{ErrorKind::out_of_memory, 0, "no host memory"});
  } catch (const std::exception& exception) {
    return fill(error, Error{ErrorKind::state, 0, exception.what()});
  } catch (...) {
    return fill(error, Error{ErrorKind::state, 0, "an unknown exception"});
  }
}

// Calls `body` with the zones; `invalid` where no zone was ever opened.
template <class Body>
int with_zones(foundry_error* error, Body body) noexcept {
  return guarded(error, [&]() -> Status {
    Zones* zones = owner_zones();
    if (zones == nullptr) return no_zone();
    return body(*zones);
  });
}

// A count, 0 where it cannot be had.
template <class Body>
size_t counted(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return 0;
  }
}

void* driver_symbol(const char* symbol) {
  return owner().config.driver_symbol == nullptr ? nullptr : owner().config.driver_symbol(symbol);
}

int zone_open(int device, const char* name, uint32_t kind, uint64_t base, uint64_t size, uint32_t* slot,
              foundry_error* error) {
  return guarded(error, [&]() -> Status {
    if (name == nullptr || slot == nullptr) return Error{ErrorKind::invalid, 0, "zone_open needs a name and a slot"};
    FOUNDRY_ASSIGN(Zones * zones, ensure_owner_zones());
    FOUNDRY_ASSIGN(*slot, zones->open(device, name, kind, base, size));
    return success();
  });
}

int zone_expect(uint32_t slot, const foundry_expectation* list, size_t count, uint64_t used_end, foundry_error* error) {
  return with_zones(error, [&](Zones& zones) { return zones.expect(slot, {list, count}, used_end); });
}

int zone_alloc(uint32_t slot, uint64_t bytes, uint64_t alignment, uint64_t stream, uint64_t* address,
               foundry_error* error) {
  return with_zones(error, [&](Zones& zones) -> Status {
    AllocRequest request;
    request.bytes = bytes;
    request.alignment = alignment;
    request.stream = stream;
    FOUNDRY_ASSIGN(*address, zones.alloc(slot, request));
    return success();
  });
}

int zone_free(uint64_t address, uint64_t stream, foundry_error* error) {
  return with_zones(error, [&](Zones& zones) {
    FreeRequest request;
    request.stream = stream;
    return zones.free(address, request);
  });
}

int zone_map(uint32_t slot, uint64_t address, uint64_t bytes, foundry_error* error) {
  return with_zones(error, [&](Zones& zones) { return zones.map(slot, address, bytes); });
}

int zone_unmap(uint64_t address, foundry_error* error) {
  return with_zones(error, [&](Zones& zones) { return zones.unmap(address); });
}

int pin(uint64_t address, uint64_t bytes, int pinned, foundry_error* error) {
  return with_zones(error, [&](Zones& zones) { return zones.pin(address, bytes, pinned != 0); });
}

int release_quarantine(uint32_t slot_or_no_zone, foundry_error* error) {
  if (slot_or_no_zone == FOUNDRY_NO_ZONE && owner_zones() == nullptr) return 0;
  return with_zones(error, [&](Zones& zones) { return zones.release_quarantine(slot_or_no_zone); });
}

size_t zones(foundry_zone_info* out, size_t capacity) {
  Zones* all = owner_zones();
  return all == nullptr ? 0 : counted([&] { return all->zones(out, capacity); });
}

size_t ranges(uint32_t slot, foundry_range* out, size_t capacity) {
  Zones* all = owner_zones();
  return all == nullptr ? 0 : counted([&] { return all->ranges(slot, out, capacity); });
}

size_t unclaimed(uint32_t slot, foundry_expectation* out, size_t capacity) {
  Zones* all = owner_zones();
  return all == nullptr ? 0 : counted([&] { return all->unclaimed(slot, out, capacity); });
}

int in_zone(uint64_t address, uint32_t* slot) {
  const Zones* all = owner_zones();
  return all != nullptr && all->in_zone(address, slot) ? 1 : 0;
}

int set_ambient(int device, uint32_t slot, foundry_error* error) {
  if (!owner().config.routes_ambient) {
    return fill(error, Error{ErrorKind::unsupported, 0,
                             "allocations of the process are only seen where libcuda_hook.so is preloaded; "
                             "start it with `foundry run --save -- ...`"});
  }
  return with_zones(error, [&](Zones& zones) { return zones.set_ambient(device, slot); });
}

void capture_delta(int delta) {
  counted([&]() -> size_t {
    {
      const std::lock_guard lock(owner().mutex);
      if (owner_zones() == nullptr) {
        owner().early_captures = std::max(owner().early_captures + delta, 0);
        return 0;
      }
    }
    owner_zones()->capture_delta(delta);
    return 0;
  });
}

void seal(int sealed) {
  counted([&]() -> size_t {
    const std::lock_guard lock(owner().mutex);
    owner().early_seal = sealed != 0;
    if (Zones* all = owner_zones()) all->seal(sealed != 0);
    return 0;
  });
}

int zone_close(uint32_t slot, foundry_error* error) {
  if (slot < FOUNDRY_MAX_ZONES && owner_zones() == nullptr) return 0;
  return with_zones(error, [&](Zones& zones) { return zones.close(slot); });
}

size_t images(foundry_image* out, size_t capacity) {
  return owner().config.images == nullptr ? 0 : owner().config.images(out, capacity);
}

size_t events(uint64_t first, foundry_event* out, size_t capacity) {
  if (owner().config.events != nullptr) return owner().config.events(first, out, capacity);
  return counted([&] { return owner().journal.copy(first, out, capacity); });
}

size_t stacks(foundry_stack* out, size_t capacity) {
  return counted([&] { return owner().journal.stacks().copy(out, capacity); });
}

size_t frames(foundry_frame* out, size_t capacity) {
  return counted([&] { return owner().journal.stacks().copy(out, capacity); });
}

size_t python_frames(foundry_python_frame* out, size_t capacity) {
  return counted([&] { return owner().journal.stacks().copy(out, capacity); });
}

size_t modules(foundry_module* out, size_t capacity) {
  return counted([&] { return owner().journal.stacks().copy(out, capacity); });
}

uint32_t journal_level() { return owner().config.journal.bits(); }

void set_python_walker(foundry_python_walker walker) { owner().journal.stacks().set_python_walker(walker); }

size_t diagnoses(char* out, size_t capacity) {
  if (owner().config.diagnoses != nullptr) return owner().config.diagnoses(out, capacity);
  return counted([&] { return owner().diagnoses.copy(out, capacity); });
}

size_t device_code(uint32_t which, const void** data) {
  return owner().config.device_code == nullptr ? 0 : owner().config.device_code(which, data);
}

}  // namespace

const foundry_abi* make_owner(const OwnerConfig& config) {
  Owner& state = owner();
  const std::lock_guard lock(state.mutex);
  if (state.table.version != 0) return &state.table;
  state.config = config;
  state.journal.set_recording(config.journal.events);
  state.journal.stacks().enable(config.journal.stacks, config.journal.python);
  if (!config.journal.understood) {
    state.diagnoses.add(
        "FOUNDRY_JOURNAL says something else than off, sizes, stacks or stacks,python; it is taken for sizes");
  }
  foundry_abi& table = state.table;
  table.bytes = sizeof(foundry_abi);
  table.owner = config.owner;
  table.build = config.build;
  table.sm_target = config.sm_target;
  table.driver_symbol = driver_symbol;
  table.zone_open = zone_open;
  table.zone_expect = zone_expect;
  table.zone_alloc = zone_alloc;
  table.zone_free = zone_free;
  table.zone_map = zone_map;
  table.zone_unmap = zone_unmap;
  table.pin = pin;
  table.release_quarantine = release_quarantine;
  table.zones = zones;
  table.ranges = ranges;
  table.unclaimed = unclaimed;
  table.in_zone = in_zone;
  table.set_ambient = set_ambient;
  table.capture_delta = capture_delta;
  table.seal = seal;
  table.zone_close = zone_close;
  table.images = images;
  table.events = events;
  table.stacks = stacks;
  table.frames = frames;
  table.python_frames = python_frames;
  table.modules = modules;
  table.journal_level = journal_level;
  table.set_python_walker = set_python_walker;
  table.diagnoses = diagnoses;
  table.device_code = device_code;
  table.version = FOUNDRY_ABI_VERSION;
  return &table;
}

Journal& owner_journal() { return owner().journal; }

Diagnoses& owner_diagnoses() { return owner().diagnoses; }

Zones* owner_zones() { return owner().zones.load(std::memory_order_acquire); }

Result<Zones*> ensure_owner_zones() {
  if (Zones* zones = owner_zones()) return zones;
  Owner& state = owner();
  const std::lock_guard lock(state.mutex);
  if (Zones* zones = owner_zones()) return zones;
  if (state.config.bind == nullptr) return Error{ErrorKind::state, 0, "the owner of the zones was not set up"};
  FOUNDRY_ASSIGN(const Windows windows, Windows::from_environment());
  FOUNDRY_ASSIGN(const driver::Driver driver, state.config.bind());
  Zones* zones = new Zones(driver, state.journal, state.diagnoses, windows);
  if (state.early_captures > 0) zones->capture_delta(state.early_captures);
  zones->seal(state.early_seal);
  state.zones.store(zones, std::memory_order_release);
  return zones;
}

int fill(foundry_error* out, const Error& error) {
  const int status = 1 + static_cast<int>(error.kind);
  if (out == nullptr) return status;
  out->kind = static_cast<int32_t>(error.kind);
  out->code = error.code;
  const size_t length = std::min(error.text.size(), sizeof(out->text) - 1);
  std::memcpy(out->text, error.text.data(), length);
  out->text[length] = '\0';
  return status;
}

Error read(const foundry_error& error) {
  const size_t length = strnlen(error.text, sizeof(error.text));
  const bool known = error.kind >= 0 && error.kind <= static_cast<int32_t>(ErrorKind::state);
  return Error{known ? static_cast<ErrorKind>(error.kind) : ErrorKind::state, error.code,
               std::string(error.text, length)};
}

}  // namespace foundry::layout
