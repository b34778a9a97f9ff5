// Driver calls behind zones: windows of addresses, physical memory in them, waiting for a device. All roll back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "csrc/base/result.h"
#include "csrc/driver/driver.h"

namespace foundry::layout {

// `value` rounded up to a multiple of the power of two `to`; none where that does not fit into 64 bits.
inline std::optional<uint64_t> round_up(uint64_t value, uint64_t to) {
  if (value > UINT64_MAX - (to - 1)) return std::nullopt;
  return (value + to - 1) & ~(to - 1);
}

// A context of device `ordinal` for a scope: the thread's own where it has one, else the device's primary context.
class DeviceScope {
 public:
  DeviceScope(const driver::Driver& driver, int ordinal);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  const Status& status() const { return status_; }
  CUdevice device() const { return device_; }
  bool uses_primary() const { return retained_; }

 private:
  const driver::Driver& driver_;
  CUdevice device_ = 0;
  bool retained_ = false;
  Status status_ = success();
  std::optional<driver::ScopedContext> context_;
};

// How physical memory of a device is made; the same for every allocation of a zone.
struct PageKind {
  CUmemAllocationProp properties = {};
  uint64_t granularity = 0;  // power of two, at least kSmallestPage
};
Result<PageKind> page_kind(const driver::Driver& driver, CUdevice device);

// [address, address+bytes) backed by one physical allocation that only its own device may read and write.
Status map_pages(const driver::Driver& driver, const PageKind& kind, uint64_t address, uint64_t bytes);
Status unmap_pages(const driver::Driver& driver, uint64_t address, uint64_t bytes);

// Reserves a window at exactly `base`. `mismatch` with the reason where the driver puts it elsewhere or refuses.
Status reserve_window(const driver::Driver& driver, uint64_t base, uint64_t bytes, uint64_t granularity);
// The first line of a /proc/<pid>/maps text that overlaps [base, base+bytes), without its line end; "" if none does.
std::string occupant(const std::string& maps, uint64_t base, uint64_t bytes);

// Waits for the work of the device: the thread's context and the primary one. `state` if a capture forbids that now.
Status synchronize(const driver::Driver& driver, int ordinal);

}  // namespace foundry::layout
