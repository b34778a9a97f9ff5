#include "csrc/hook/cuda_api.h"

#include "csrc/hook/owner.h"

#include <atomic>
#include <mutex>
#include <string>

#include "csrc/base/text.h"
#include "csrc/base/version.h"
#include "csrc/driver/driver.h"
#include "csrc/hook/device_code.h"
#include "csrc/hook/image_registry.h"
#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"
#include "csrc/layout/owner.h"

namespace foundry::hook {
namespace {

constexpr int kMaxDevices = 64;
constexpr const char* kAmbient = "ambient";

// Whether somebody has decided where plain allocations of a device go: set_ambient, or the hook at the first one.
std::atomic<bool> g_decided[kMaxDevices];
enum class Fit : int { unknown, yes, no };
std::atomic<Fit> g_fits[kMaxDevices];

bool in_range(int device) { return device >= 0 && device < kMaxDevices; }

const foundry_abi* base_table() {
  static const foundry_abi* const table = [] {
    layout::OwnerConfig config;
    config.owner = "hook";
    config.build = device_code().sm_target == 80 ? FOUNDRY_VERSION " sm_80" : FOUNDRY_VERSION " sm_90";
    config.sm_target = device_code().sm_target;
    config.routes_ambient = true;
    config.journal = settings().journal;
    config.bind = &bind_driver;
    config.driver_symbol = [](const char* symbol) { return libcuda_symbol(symbol); };
    config.images = &images;
    config.device_code = [](uint32_t which, const void** data) -> size_t {
      if (which != FOUNDRY_CODE_BLOCK_SUMMARY && which != FOUNDRY_CODE_POINTER_SCAN) return 0;
      const device::Code& code = device_code();
      const device::Fatbin& fatbin = which == FOUNDRY_CODE_BLOCK_SUMMARY ? code.block_summary : code.pointer_scan;
      *data = fatbin.data;
      return fatbin.bytes;
    };
    return layout::make_owner(config);
  }();
  return table;
}

int set_ambient(int device, uint32_t slot, foundry_error* error) {
  if (in_range(device)) g_decided[device].store(true);
  if (slot == FOUNDRY_NO_ZONE && layout::owner_zones() == nullptr) return 0;  // there is nothing to route to
  return base_table()->set_ambient(device, slot, error);
}

void open_ambient(int device) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (g_decided[device].load()) return;
  layout::Zones* zones = zones_made();
  if (zones == nullptr) return;
  if (!zones->sealed()) {
    Result<uint32_t> slot = zones->open(device, kAmbient, FOUNDRY_ZONE_AMBIENT, 0, 0);
    Status routed = slot.ok() ? zones->set_ambient(device, *slot) : Status(slot.error());
    if (!routed.ok()) {
      diagnose(
          format("allocations of device %d outside phases stay where the driver puts them, so graphs that use them "
                 "cannot be saved: %s",
                 device, routed.error().text.c_str()));
    }
  }
  g_decided[device].store(true);
}

}  // namespace

const foundry_abi* owner_table() noexcept {
  if (!hooking()) return nullptr;
  return contained("setting up the owner of the zones", static_cast<const foundry_abi*>(nullptr), [] {
    static const foundry_abi table = [] {
      foundry_abi ours = *base_table();
      ours.set_ambient = &set_ambient;
      return ours;
    }();
    return &table;
  });
}

layout::Zones* zones_if_any() noexcept { return forked() ? nullptr : layout::owner_zones(); }

layout::Zones* zones_made() noexcept {
  if (layout::Zones* zones = zones_if_any()) return zones;
  if (!working()) return nullptr;
  return contained("setting up the zones", static_cast<layout::Zones*>(nullptr), []() -> layout::Zones* {
    base_table();
    Result<layout::Zones*> zones = layout::ensure_owner_zones();
    if (zones.ok()) return *zones;
    switch_off(zones.error().text);
    return nullptr;
  });
}

uint32_t ambient_slot(int device) noexcept {
  if (!working() || !in_range(device)) return FOUNDRY_NO_ZONE;
  if (!g_decided[device].load(std::memory_order_acquire) && settings().mode == Mode::save) {
    contained("opening the ambient zone", [&] { open_ambient(device); });
  }
  layout::Zones* zones = zones_if_any();
  return zones == nullptr ? FOUNDRY_NO_ZONE : zones->ambient(device);
}

void stop_ambient(int device) noexcept {
  if (!in_range(device)) return;
  g_decided[device].store(true);
  contained("closing the ambient zone", [&] {
    layout::Zones* zones = zones_if_any();
    if (zones == nullptr) return;
    const Status stopped = zones->set_ambient(device, FOUNDRY_NO_ZONE);
    if (!stopped.ok()) switch_off(stopped.error().text);
  });
}

bool fits(int device) noexcept {
  if (!in_range(device)) return false;
  const Fit known = g_fits[device].load(std::memory_order_relaxed);
  if (known != Fit::unknown) return known == Fit::yes;
  const driver::Driver* table = driver_table();
  if (table == nullptr) return false;
  int major = 0, minor = 0;
  if (table->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) != CUDA_SUCCESS ||
      table->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) != CUDA_SUCCESS) {
    return false;  // the driver says why when the application's own call reaches it
  }
  const int target = device_code().sm_target;
  const bool fit = runs_on(target, major, minor);
  g_fits[device].store(fit ? Fit::yes : Fit::no, std::memory_order_relaxed);
  if (!fit) {
    contained("the check of the device", [&] {
      switch_off(
          format("its sm_%d build does not fit device %d, which has compute capability %d.%d; `foundry run` "
                 "chooses the build by the device, FOUNDRY_SM overrides it",
                 target, device, major, minor));
    });
  }
  return fit;
}

}  // namespace foundry::hook
