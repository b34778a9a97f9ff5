#include "csrc/layout/pages.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "csrc/base/text.h"
#include "csrc/layout/zones.h"

namespace foundry::layout {
namespace {

// No streams: they would give the hook a constructor that sets up locales in every process.
std::string own_maps() {
  std::string text;
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  char block[4096];
  for (ssize_t got = 0; (got = read(file, block, sizeof block)) > 0;) text.append(block, static_cast<size_t>(got));
  close(file);
  return text;
}

// An error that keeps its cause and adds what could not be undone.
Error with_failed_undo(Error error, const driver::Driver& driver, CUresult undo, const char* call) {
  if (undo != CUDA_SUCCESS) error.text += "; undoing it failed too: " + driver.error(undo, call).text;
  return error;
}

bool capture_forbids(CUresult code) {
  return code >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

Status synchronize_current(const driver::Driver& driver) {
  const CUresult code = driver.cuCtxSynchronize();
  if (code == CUDA_SUCCESS) return success();
  Error error = driver.error(code, "cuCtxSynchronize");
  if (capture_forbids(code)) error.kind = ErrorKind::state;
  return error;
}

}  // namespace

DeviceScope::DeviceScope(const driver::Driver& driver, int ordinal) : driver_(driver) {
  CUresult code = driver_.cuDeviceGet(&device_, ordinal);
  if (code != CUDA_SUCCESS) {
    status_ = driver_.error(code, "cuDeviceGet").within(format("device %d", ordinal));
    return;
  }
  CUcontext current = nullptr;
  CUdevice of = 0;
  if (driver_.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr &&
      driver_.cuCtxGetDevice(&of) == CUDA_SUCCESS && of == device_) {
    return;
  }
  CUcontext primary = nullptr;
  code = driver_.cuDevicePrimaryCtxRetain(&primary, device_);
  if (code != CUDA_SUCCESS) {
    status_ = driver_.error(code, "cuDevicePrimaryCtxRetain").within(format("device %d", ordinal));
    return;
  }
  retained_ = true;
  context_.emplace(driver_, primary);
  status_ = context_->status();
}

DeviceScope::~DeviceScope() {
  context_.reset();
  if (retained_) driver_.cuDevicePrimaryCtxRelease(device_);
}

Result<PageKind> page_kind(const driver::Driver& driver, CUdevice device) {
  PageKind kind;
  kind.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.properties.location.id = device;
  // Plain allocations can be used by network cards, so ours must be able to as well. Older drivers do not know the
  // question.
  int direct = 0;
  if (driver.cuDeviceGetAttribute(&direct, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) ==
          CUDA_SUCCESS &&
      direct != 0) {
    kind.properties.allocFlags.gpuDirectRDMACapable = 1;
  }
  size_t granularity = 0;
  FOUNDRY_CU(driver, cuMemGetAllocationGranularity, &granularity, &kind.properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (granularity == 0 || (granularity & (granularity - 1)) != 0 || granularity > (uint64_t{1} << 31)) {
    return Error{
        ErrorKind::driver, 0,
        format("the driver's allocation granularity of %zu bytes is no power of two up to 2 GiB", granularity)};
  }
  kind.granularity = granularity > kSmallestPage ? granularity : kSmallestPage;
  return kind;
}

Status map_pages(const driver::Driver& driver, const PageKind& kind, uint64_t address, uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  FOUNDRY_CU(driver, cuMemCreate, &handle, bytes, &kind.properties, 0);
  CUresult code = driver.cuMemMap(address, bytes, 0, handle, 0);
  if (code != CUDA_SUCCESS) {
    return with_failed_undo(driver.error(code, "cuMemMap"), driver, driver.cuMemRelease(handle), "cuMemRelease");
  }
  CUmemAccessDesc access = {};
  access.location = kind.properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const char* call = "cuMemSetAccess";
  code = driver.cuMemSetAccess(address, bytes, &access, 1);
  // The mapping keeps the memory alive; a handle of our own would only have to be looked after.
  const CUresult released = driver.cuMemRelease(handle);
  if (code == CUDA_SUCCESS && released != CUDA_SUCCESS) {
    call = "cuMemRelease";
    code = released;
  }
  if (code == CUDA_SUCCESS) return success();
  return with_failed_undo(driver.error(code, call), driver, driver.cuMemUnmap(address, bytes), "cuMemUnmap");
}

Status unmap_pages(const driver::Driver& driver, uint64_t address, uint64_t bytes) {
  const driver::RelaxedCaptureMode relaxed(driver);
  FOUNDRY_CU(driver, cuMemUnmap, address, bytes);
  return success();
}

std::string occupant(const std::string& maps, uint64_t base, uint64_t bytes) {
  for (size_t at = 0; at < maps.size();) {
    const size_t stop = std::min(maps.find('\n', at), maps.size());
    const std::string line = maps.substr(at, stop - at);
    at = stop + 1;
    uint64_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &begin, &end) != 2) continue;
    if (begin < base + bytes && base < end) return line;
  }
  return {};
}

Status reserve_window(const driver::Driver& driver, uint64_t base, uint64_t bytes, uint64_t granularity) {
  CUdeviceptr landed = 0;
  const CUresult code = driver.cuMemAddressReserve(&landed, bytes, granularity, base, 0);
  if (code == CUDA_SUCCESS && landed == base) return success();
  std::string reason;
  if (code == CUDA_SUCCESS) {
    FOUNDRY_CU(driver, cuMemAddressFree, landed, bytes);
    reason = "the driver placed it at " + hex(landed) + " instead";
  } else {
    reason = driver.error(code, "cuMemAddressReserve").text;
  }
  const std::string line = occupant(own_maps(), base, bytes);
  if (!line.empty()) reason += "; the process has mapped there: " + line;
  return Error{ErrorKind::mismatch, static_cast<int>(code),
               format("%s of addresses at %s cannot be reserved: %s", bytes_text(bytes).c_str(), hex(base).c_str(),
                      reason.c_str())};
}

Status synchronize(const driver::Driver& driver, int ordinal) {
  CUdevice device = 0;
  FOUNDRY_CU(driver, cuDeviceGet, &device, ordinal);
  CUcontext current = nullptr;
  CUdevice of = 0;
  FOUNDRY_CU(driver, cuCtxGetCurrent, &current);
  if (current != nullptr && driver.cuCtxGetDevice(&of) == CUDA_SUCCESS && of == device) {
    FOUNDRY_TRY(synchronize_current(driver));
  }
  // Without a primary context there is no other work of ours to wait for, and none must be created for it.
  unsigned int flags = 0;
  int active = 0;
  FOUNDRY_CU(driver, cuDevicePrimaryCtxGetState, device, &flags, &active);
  if (active == 0) return success();
  CUcontext primary = nullptr;
  FOUNDRY_CU(driver, cuDevicePrimaryCtxRetain, &primary, device);
  Status status = success();
  if (primary != current) {
    const driver::ScopedContext scope(driver, primary);
    status = scope.status().ok() ? synchronize_current(driver) : scope.status();
  }
  driver.cuDevicePrimaryCtxRelease(device);
  return status;
}

}  // namespace foundry::layout
