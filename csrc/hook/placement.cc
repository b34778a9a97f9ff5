#include "csrc/hook/placement.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "csrc/base/text.h"
#include "csrc/driver/driver.h"
#include "csrc/hook/owner.h"
#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"
#include "csrc/layout/zones.h"

namespace foundry::hook {
namespace {

// The first zone that fits; FOUNDRY_NO_ZONE if there is none.
template <class Fits>
uint32_t find_zone(const layout::Zones& zones, Fits fits) {
  std::array<foundry_zone_info, FOUNDRY_MAX_ZONES> infos;
  const size_t count = zones.zones(infos.data(), infos.size());
  for (const foundry_zone_info& info : std::span(infos).first(std::min(count, infos.size()))) {
    if (fits(info)) return info.slot;
  }
  return FOUNDRY_NO_ZONE;
}

// Frameworks free their graph-private memory through the owner's table, so what an application frees in a graphs zone
// is memory of place_in_graph.
bool is_of_a_graph(const layout::Zones& zones, CUdeviceptr address) {
  const std::optional<foundry_range> range = zones.find(address);
  if (!range || range->address != address || range->state != FOUNDRY_RANGE_LIVE) return false;
  return find_zone(zones, [&](const foundry_zone_info& info) {
           return info.slot == range->slot && info.kind == FOUNDRY_ZONE_GRAPHS;
         }) != FOUNDRY_NO_ZONE;
}

}  // namespace

bool may_place() noexcept { return working() && (settings().mode == Mode::save || zones_if_any() != nullptr); }

Placement place(const Row& row, CUdeviceptr* out, size_t bytes, uint64_t stream) noexcept {
  if (!may_place() || out == nullptr || bytes == 0) return {};
  return contained("placing an allocation", Placement{}, [&]() -> Placement {
    const driver::Driver* table = driver_table();
    CUdevice device = 0;
    if (table == nullptr || table->cuCtxGetDevice(&device) != CUDA_SUCCESS || !fits(device)) return {};
    const uint32_t slot = ambient_slot(device);
    layout::Zones* zones = zones_if_any();
    if (slot == FOUNDRY_NO_ZONE || zones == nullptr) return {};

    layout::AllocRequest request;
    request.bytes = bytes;
    request.stream = stream;
    request.entry_point = row.symbol;
    const Result<uint64_t> address = zones->alloc(slot, request);
    if (address.ok()) {
      *out = address.value();
      return {CUDA_SUCCESS, {}};
    }
    if (address.error().code == CUDA_ERROR_OUT_OF_MEMORY) return {CUDA_ERROR_OUT_OF_MEMORY, {}};
    return {std::nullopt, address.error().text};
  });
}

void misplaced(const Row& row, size_t bytes, const std::string& reason) noexcept {
  contained("placing an allocation", [&] {
    diagnose(format("%s of %s went to the driver, so graphs that use it cannot be saved: %s", row.symbol,
                    bytes_text(bytes).c_str(), reason.c_str()));
  });
}

bool place_in_graph(const Row& row, CUdeviceptr* out, size_t bytes, uint64_t stream) noexcept {
  if (!may_place() || out == nullptr || bytes == 0) return false;
  return contained("placing an allocation of a graph", false, [&] {
    const driver::Driver* table = driver_table();
    CUdevice device = 0;
    if (table == nullptr || table->cuCtxGetDevice(&device) != CUDA_SUCCESS || !fits(device)) return false;
    layout::Zones* zones = zones_if_any();
    // Ambient routing is what tells a session that saves.
    if (zones == nullptr || zones->ambient(device) == FOUNDRY_NO_ZONE) return false;
    const uint32_t slot = find_zone(*zones, [&](const foundry_zone_info& info) {
      return info.device == device && info.kind == FOUNDRY_ZONE_GRAPHS;
    });
    if (slot == FOUNDRY_NO_ZONE) return false;
    layout::AllocRequest request;
    request.bytes = bytes;
    request.stream = stream;
    request.entry_point = row.symbol;
    request.shares_pages = true;
    const Result<uint64_t> address = zones->alloc(slot, request);
    if (address.ok()) *out = address.value();
    return address.ok();
  });
}

std::optional<CUresult> free_in_zone(const Row& row, CUdeviceptr address, uint64_t stream) noexcept {
  layout::Zones* zones = zones_if_any();
  if (zones == nullptr || !zones->in_zone(address)) return std::nullopt;
  return contained("freeing an allocation", CUDA_ERROR_UNKNOWN, [&] {
    if (is_of_a_graph(*zones, address)) return CUDA_SUCCESS;
    layout::FreeRequest request;
    request.stream = stream;
    request.entry_point = row.symbol;
    const Status freed = zones->free(address, request);
    if (freed.ok()) return CUDA_SUCCESS;
    if (freed.error().kind == ErrorKind::invalid) return CUDA_ERROR_INVALID_VALUE;
    diagnose(freed.error().text);
    return freed.error().code == 0 ? CUDA_ERROR_UNKNOWN : static_cast<CUresult>(freed.error().code);
  });
}

}  // namespace foundry::hook
