#include "csrc/hook/placement.h"

#include <string>

#include "csrc/base/text.h"
#include "csrc/driver/driver.h"
#include "csrc/hook/owner.h"
#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"
#include "csrc/layout/zones.h"

namespace foundry::hook {

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

std::optional<CUresult> free_in_zone(const Row& row, CUdeviceptr address, uint64_t stream) noexcept {
  layout::Zones* zones = zones_if_any();
  if (zones == nullptr || !zones->in_zone(address)) return std::nullopt;
  return contained("freeing an allocation", CUDA_ERROR_UNKNOWN, [&] {
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
