#include "tests/unit/layout/fake_driver.h"

#include <cstdlib>

#include "csrc/base/text.h"

namespace foundry::layout::testing {
namespace {

FakeDriver* alive = nullptr;
thread_local CUcontext current = nullptr;
thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// Contexts are numbers: 0x100 + device is a primary one, 0x200 + device another one.
CUcontext primary_context(int device) { return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(0x100 + device)); }
int device_of(CUcontext context) { return static_cast<int>(reinterpret_cast<uintptr_t>(context) & 0xff); }

}  // namespace

CUcontext own_context(int device) { return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(0x200 + device)); }
void set_current(CUcontext context) { current = context; }

// Functions of the table; each locks, counts, and asks whether it shall fail.
struct Calls {
#define ENTER(name)                        \
  FakeDriver& self = *alive;               \
  const std::lock_guard lock(self.mutex_); \
  if (const CUresult forced = self.enter(#name); forced != CUDA_SUCCESS) return forced

  static CUresult CUDAAPI cuGetErrorString(CUresult, const char** text) {
    *text = "made to fail";
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuGetErrorName(CUresult, const char** text) {
    *text = "CUDA_ERROR_TEST";
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
    ENTER(cuDeviceGet);
    if (ordinal < 0 || ordinal >= self.devices) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    ENTER(cuDeviceGetAttribute);
    *value = attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED && self.rdma ? 1 : 0;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    ++self.primary_[device];
    *context = primary_context(device);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease);
    if (--self.primary_[device] < 0) self.violate("primary context released too often");
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
    ENTER(cuDevicePrimaryCtxGetState);
    *flags = 0;
    *active = self.primary_[device] > 0 ? 1 : 0;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
    ENTER(cuCtxGetCurrent);
    *context = current;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
    ENTER(cuCtxSetCurrent);
    current = context;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
    ENTER(cuCtxGetDevice);
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = device_of(current);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuCtxSynchronize() {
    {
      ENTER(cuCtxSynchronize);
      if (current == nullptr) self.violate("cuCtxSynchronize without a context");
      if (self.capturing) self.violate("cuCtxSynchronize during a capture");
      self.log_.back() += format(" %llx", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(current)));
    }
    if (alive->on_synchronize) alive->on_synchronize();
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* other) {
    ENTER(cuThreadExchangeStreamCaptureMode);
    std::swap(mode, *other);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr base,
                                              unsigned long long) {
    ENTER(cuMemAddressReserve);
    careful(self, "cuMemAddressReserve");
    if (bytes % self.granularity != 0 || alignment % self.granularity != 0)
      self.violate("reservation is not whole pages");
    const auto elsewhere = self.land_elsewhere.find(base);
    *address = elsewhere == self.land_elsewhere.end() ? base : elsewhere->second;
    self.reservations_[*address] = bytes;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    ENTER(cuMemAddressFree);
    const auto at = self.reservations_.find(address);
    if (at == self.reservations_.end() || at->second != bytes) {
      self.violate("cuMemAddressFree of what was not reserved");
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto inside = self.mappings_.lower_bound(address);
    if (inside != self.mappings_.end() && inside->first < address + bytes)
      self.violate("window freed with mappings in it");
    self.reservations_.erase(at);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                                        CUmemAllocationGranularity_flags) {
    ENTER(cuMemGetAllocationGranularity);
    *granularity = self.granularity;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                      const CUmemAllocationProp* kind, unsigned long long) {
    ENTER(cuMemCreate);
    careful(self, "cuMemCreate");
    if (bytes == 0 || bytes % self.granularity != 0) self.violate("cuMemCreate is not whole pages");
    if (bytes > self.capacity - self.physical_) return CUDA_ERROR_OUT_OF_MEMORY;
    self.physical_ += bytes;
    *handle = self.next_handle_++;
    self.handles_[*handle] = {bytes, kind->location.id, 0, false, kind->allocFlags.gpuDirectRDMACapable != 0};
    if ((kind->allocFlags.gpuDirectRDMACapable != 0) != self.rdma) self.violate("RDMA flag does not fit the device");
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER(cuMemRelease);
    const auto at = self.handles_.find(handle);
    if (at == self.handles_.end() || at->second.released) {
      self.violate("cuMemRelease of an unknown handle");
      return CUDA_ERROR_INVALID_VALUE;
    }
    at->second.released = true;
    self.drop(handle);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                   CUmemGenericAllocationHandle handle, unsigned long long) {
    ENTER(cuMemMap);
    careful(self, "cuMemMap");
    const auto at = self.handles_.find(handle);
    auto window = self.reservations_.upper_bound(address);
    const bool reserved =
        window != self.reservations_.begin() && (--window, address + bytes <= window->first + window->second);
    auto next = self.mappings_.lower_bound(address);
    const bool clash = (next != self.mappings_.end() && next->first < address + bytes) ||
                       (next != self.mappings_.begin() && (--next, next->first + next->second.bytes > address));
    if (at == self.handles_.end() || at->second.bytes != bytes || offset != 0 || !reserved || clash ||
        address % self.granularity != 0) {
      self.violate("cuMemMap at " + hex(address) +
                   (clash ? " over another mapping" : " outside a reservation or wrong size"));
      return CUDA_ERROR_INVALID_VALUE;
    }
    ++at->second.mappings;
    self.mappings_[address] = {bytes, handle, {}};
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
    ENTER(cuMemUnmap);
    careful(self, "cuMemUnmap");
    const auto at = self.mappings_.find(address);
    if (at == self.mappings_.end() || at->second.bytes != bytes) {
      self.violate("cuMemUnmap of what is not mapped");
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (self.capturing) self.violate("cuMemUnmap during a capture");
    const CUmemGenericAllocationHandle handle = at->second.handle;
    self.mappings_.erase(at);
    --self.handles_[handle].mappings;
    self.drop(handle);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                                         size_t count) {
    ENTER(cuMemSetAccess);
    careful(self, "cuMemSetAccess");
    const auto at = self.mappings_.find(address);
    if (at == self.mappings_.end() || at->second.bytes != bytes || count != 1 ||
        access->location.type != CU_MEM_LOCATION_TYPE_DEVICE || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      self.violate("cuMemSetAccess of something else than a whole mapping for one device");
      return CUDA_ERROR_INVALID_VALUE;
    }
    at->second.devices.insert(access->location.id);
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, size_t bytes) {
    ENTER(cuMemAlloc);
    careful(self, "cuMemAlloc");
    if (bytes > self.capacity - self.physical_) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = self.next_plain_;
    self.next_plain_ += (bytes + 511) / 512 * 512;
    self.plain_[*address] = bytes;
    self.physical_ += bytes;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
    ENTER(cuMemFree);
    const auto at = self.plain_.find(address);
    if (at == self.plain_.end()) {
      self.violate("cuMemFree of what cuMemAlloc did not give out");
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (self.capturing) self.violate("cuMemFree during a capture");
    self.physical_ -= at->second;
    self.plain_.erase(at);
    return CUDA_SUCCESS;
  }
#undef ENTER

  // What Foundry promises for every call that touches memory: a context, and no harm to a capture.
  static void careful(FakeDriver& self, const char* name) {
    if (current == nullptr) self.violate(std::string(name) + " without a context");
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) self.violate(std::string(name) + " outside relaxed capture mode");
  }
};

FakeDriver::FakeDriver() {
  if (alive != nullptr) std::abort();
  alive = this;
  current = nullptr;
}

FakeDriver::~FakeDriver() {
  alive = nullptr;
  current = nullptr;
}

driver::Driver FakeDriver::table() const {
  driver::Driver driver;
#define SET(name) driver.name = &Calls::name
  SET(cuGetErrorString);
  SET(cuGetErrorName);
  SET(cuDeviceGet);
  SET(cuDeviceGetAttribute);
  SET(cuDevicePrimaryCtxRetain);
  SET(cuDevicePrimaryCtxRelease);
  SET(cuDevicePrimaryCtxGetState);
  SET(cuCtxGetCurrent);
  SET(cuCtxSetCurrent);
  SET(cuCtxGetDevice);
  SET(cuCtxSynchronize);
  SET(cuThreadExchangeStreamCaptureMode);
  SET(cuMemAddressReserve);
  SET(cuMemAddressFree);
  SET(cuMemGetAllocationGranularity);
  SET(cuMemCreate);
  SET(cuMemRelease);
  SET(cuMemMap);
  SET(cuMemUnmap);
  SET(cuMemSetAccess);
  SET(cuMemAlloc);
  SET(cuMemFree);
#undef SET
  return driver;
}

void FakeDriver::fail(const std::string& name, CUresult code, int skip, int times) {
  const std::lock_guard lock(mutex_);
  failures_[name] = {code, skip, times};
}

CUresult FakeDriver::enter(const char* name) {
  ++calls_[name];
  log_.emplace_back(name);
  const auto at = failures_.find(name);
  if (at == failures_.end()) return CUDA_SUCCESS;
  Failure& failure = at->second;
  if (failure.skip > 0) {
    --failure.skip;
    return CUDA_SUCCESS;
  }
  const CUresult code = failure.code;
  if (--failure.times == 0) failures_.erase(at);
  return code;
}

void FakeDriver::drop(CUmemGenericAllocationHandle handle) {
  const auto at = handles_.find(handle);
  if (!at->second.released || at->second.mappings != 0) return;
  physical_ -= at->second.bytes;
  handles_.erase(at);
}

int FakeDriver::calls(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return calls_[name];
}

std::vector<std::string> FakeDriver::log() {
  const std::lock_guard lock(mutex_);
  return log_;
}

std::vector<std::string> FakeDriver::violations() {
  const std::lock_guard lock(mutex_);
  return violations_;
}

bool FakeDriver::accessible(uint64_t address, int device) {
  const std::lock_guard lock(mutex_);
  auto at = mappings_.upper_bound(address);
  if (at == mappings_.begin()) return false;
  --at;
  return address - at->first < at->second.bytes && at->second.devices == std::set<int>{device};
}

std::map<uint64_t, uint64_t> FakeDriver::mapped() {
  const std::lock_guard lock(mutex_);
  std::map<uint64_t, uint64_t> out;
  for (const auto& [address, mapping] : mappings_) out[address] = mapping.bytes;
  return out;
}

uint64_t FakeDriver::physical() {
  const std::lock_guard lock(mutex_);
  return physical_;
}

size_t FakeDriver::reservations() {
  const std::lock_guard lock(mutex_);
  return reservations_.size();
}

int FakeDriver::primary_references(int device) {
  const std::lock_guard lock(mutex_);
  return primary_[device];
}

}  // namespace foundry::layout::testing
