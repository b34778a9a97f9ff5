// Questions whose plain answer would be wrong for memory in zones, and lookups of entry points.
#include "csrc/hook/handlers.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/hook/lookup.h"
#include "csrc/hook/owner.h"
#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"
#include "csrc/layout/zones.h"

namespace foundry::hook {
namespace {

struct Located {
  bool in_zone = false;
  std::optional<foundry_range> range;  // only while it is allocated
};

Located locate(CUdeviceptr address) noexcept {
  return contained("looking up an address", Located{}, [&] {
    Located located;
    layout::Zones* zones = zones_if_any();
    if (zones == nullptr || !zones->in_zone(address)) return located;
    located.in_zone = true;
    located.range = zones->find(address);
    if (located.range && located.range->state != FOUNDRY_RANGE_LIVE &&
        located.range->state != FOUNDRY_RANGE_MATERIALIZED) {
      located.range.reset();
    }
    return located;
  });
}

// Freed, but kept until the audit: the application may have it at any time.
size_t quarantined_bytes() noexcept {
  return contained("counting quarantined memory", size_t{0}, [] {
    layout::Zones* zones = zones_if_any();
    const driver::Driver* table = driver_table();
    CUdevice device = 0;
    if (zones == nullptr || table == nullptr || table->cuCtxGetDevice(&device) != CUDA_SUCCESS) return size_t{0};
    std::vector<foundry_zone_info> infos(FOUNDRY_MAX_ZONES);
    infos.resize(std::min(infos.size(), zones->zones(infos.data(), infos.size())));
    size_t sum = 0;
    for (const foundry_zone_info& info : infos) {
      if (info.device == device) sum += info.quarantined_bytes;
    }
    return sum;
  });
}

}  // namespace

CUresult get_proc_address(const Row&, PFN_cuGetProcAddress_v11030 next, const char* symbol, void** function,
                          int cuda_version, cuuint64_t flags) {
  const CUresult result = next(symbol, function, cuda_version, flags);
  if (result == CUDA_SUCCESS && function != nullptr) *function = substitute(symbol, *function, cuda_version, flags);
  return result;
}

CUresult get_proc_address_v2(const Row&, PFN_cuGetProcAddress_v12000 next, const char* symbol, void** function,
                             int cuda_version, cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  const CUresult result = next(symbol, function, cuda_version, flags, status);
  if (result == CUDA_SUCCESS && function != nullptr) *function = substitute(symbol, *function, cuda_version, flags);
  return result;
}

CUresult mem_get_info(const Row&, PFN_cuMemGetInfo_v3020 next, size_t* free_bytes, size_t* total_bytes) {
  const CUresult result = next(free_bytes, total_bytes);
  if (result == CUDA_SUCCESS && free_bytes != nullptr && total_bytes != nullptr) {
    *free_bytes = std::min(*total_bytes, *free_bytes + quarantined_bytes());
  }
  return result;
}

CUresult mem_get_address_range(const Row&, PFN_cuMemGetAddressRange_v3020 next, CUdeviceptr* base, size_t* bytes,
                               CUdeviceptr address) {
  const Located located = locate(address);
  if (!located.in_zone) return next(base, bytes, address);
  if (!located.range) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = located.range->address;
  if (bytes != nullptr) *bytes = located.range->bytes;
  return CUDA_SUCCESS;
}

CUresult pointer_get_attribute(const Row&, PFN_cuPointerGetAttribute_v4000 next, void* value,
                               CUpointer_attribute attribute, CUdeviceptr address) {
  const Located located = locate(address);
  if (!located.in_zone) return next(value, attribute, address);
  if (!located.range) return CUDA_ERROR_INVALID_VALUE;
  if (value != nullptr && attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
    *static_cast<CUdeviceptr*>(value) = located.range->address;
    return CUDA_SUCCESS;
  }
  if (value != nullptr && attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
    *static_cast<size_t*>(value) = located.range->bytes;
    return CUDA_SUCCESS;
  }
  return next(value, attribute, address);
}

CUresult pointer_get_attributes(const Row&, PFN_cuPointerGetAttributes_v7000 next, unsigned int count,
                                CUpointer_attribute* attributes, void** values, CUdeviceptr address) {
  const CUresult result = next(count, attributes, values, address);
  if (result != CUDA_SUCCESS || attributes == nullptr || values == nullptr) return result;
  const Located located = locate(address);
  if (!located.in_zone) return result;
  for (unsigned int i = 0; i < count; ++i) {
    if (values[i] == nullptr) continue;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
      *static_cast<CUdeviceptr*>(values[i]) = located.range ? located.range->address : 0;
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
      *static_cast<size_t*>(values[i]) = located.range ? located.range->bytes : 0;
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE && !located.range) {
      *static_cast<unsigned int*>(values[i]) = 0;  // what the driver says of memory it does not know
    }
  }
  return result;
}

// Legacy handles do not exist for mapped memory; this answer lets the caller fall back.
CUresult ipc_get_mem_handle(const Row&, PFN_cuIpcGetMemHandle_v4010 next, CUipcMemHandle* handle, CUdeviceptr address) {
  return locate(address).in_zone ? CUDA_ERROR_NOT_SUPPORTED : next(handle, address);
}

}  // namespace foundry::hook
