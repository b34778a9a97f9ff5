// Plain, managed and host memory, and mappings that somebody else makes.
#include "csrc/hook/handlers.h"

#include "csrc/hook/note.h"
#include "csrc/hook/placement.h"

namespace foundry::hook {
namespace {

// What cuMemAllocPitch of the driver gives on every device so far.
constexpr size_t kPitchAlignment = 512;

CUresult noted_alloc(const Row& row, CUresult result, const CUdeviceptr* out, size_t bytes) {
  if (result == CUDA_SUCCESS && out != nullptr) note(FOUNDRY_EVENT_ALLOC, row, *out, bytes);
  return result;
}

CUresult noted_host(const Row& row, CUresult result, void** out, size_t bytes) {
  if (result == CUDA_SUCCESS && out != nullptr) {
    note(FOUNDRY_EVENT_HOST_ALLOC, row, reinterpret_cast<uint64_t>(*out), bytes);
  }
  return result;
}

CUresult noted(const Row& row, CUresult result, foundry_event_kind kind, uint64_t address, uint64_t bytes) {
  if (result == CUDA_SUCCESS) note(kind, row, address, bytes);
  return result;
}

}  // namespace

CUresult mem_alloc(const Row& row, PFN_cuMemAlloc_v3020 next, CUdeviceptr* out, size_t bytes) {
  return place_or(row, out, bytes, 0, [&] { return noted_alloc(row, next(out, bytes), out, bytes); });
}

CUresult mem_alloc_pitch(const Row& row, PFN_cuMemAllocPitch_v3020 next, CUdeviceptr* out, size_t* pitch,
                         size_t width_bytes, size_t height, unsigned int element_bytes) {
  size_t padded = 0, bytes = 0;
  const bool plain = pitch != nullptr && (element_bytes == 4 || element_bytes == 8 || element_bytes == 16) &&
                     !__builtin_add_overflow(width_bytes, kPitchAlignment - 1, &padded) &&
                     !__builtin_mul_overflow(padded &= ~(kPitchAlignment - 1), height, &bytes);
  const auto allocate = [&] {
    const CUresult result = next(out, pitch, width_bytes, height, element_bytes);
    if (result == CUDA_SUCCESS && pitch != nullptr) padded = *pitch;
    return noted_alloc(row, result, out, padded * height);
  };
  if (!plain) return allocate();
  const CUresult result = place_or(row, out, bytes, 0, allocate);
  if (result == CUDA_SUCCESS) *pitch = padded;
  return result;
}

CUresult mem_alloc_managed(const Row& row, PFN_cuMemAllocManaged_v6000 next, CUdeviceptr* out, size_t bytes,
                           unsigned int flags) {
  return noted_alloc(row, next(out, bytes, flags), out, bytes);
}

CUresult mem_free(const Row& row, PFN_cuMemFree_v3020 next, CUdeviceptr address) {
  if (const auto freed = free_in_zone(row, address, 0)) return *freed;
  const CUresult result = next(address);
  return address == 0 ? result : noted(row, result, FOUNDRY_EVENT_FREE, address, 0);
}

CUresult mem_alloc_host_v1(const Row& row, PFN_cuMemAllocHost_v2000 next, void** out, unsigned int bytes) {
  return noted_host(row, next(out, bytes), out, bytes);
}

CUresult mem_alloc_host(const Row& row, PFN_cuMemAllocHost_v3020 next, void** out, size_t bytes) {
  return noted_host(row, next(out, bytes), out, bytes);
}

CUresult mem_host_alloc(const Row& row, PFN_cuMemHostAlloc_v2020 next, void** out, size_t bytes, unsigned int flags) {
  return noted_host(row, next(out, bytes, flags), out, bytes);
}

CUresult mem_host_register(const Row& row, PFN_cuMemHostRegister_v6050 next, void* address, size_t bytes,
                           unsigned int flags) {
  return noted(row, next(address, bytes, flags), FOUNDRY_EVENT_HOST_ALLOC, reinterpret_cast<uint64_t>(address), bytes);
}

CUresult mem_host_release(const Row& row, PFN_cuMemFreeHost_v2000 next, void* address) {
  return noted(row, next(address), FOUNDRY_EVENT_HOST_FREE, reinterpret_cast<uint64_t>(address), 0);
}

CUresult mem_address_reserve(const Row& row, PFN_cuMemAddressReserve_v10020 next, CUdeviceptr* out, size_t bytes,
                             size_t alignment, CUdeviceptr address, unsigned long long flags) {
  const CUresult result = next(out, bytes, alignment, address, flags);
  return noted(row, result, FOUNDRY_EVENT_STATE, result == CUDA_SUCCESS && out != nullptr ? *out : 0, bytes);
}

CUresult mem_address_free(const Row& row, PFN_cuMemAddressFree_v10020 next, CUdeviceptr address, size_t bytes) {
  return noted(row, next(address, bytes), FOUNDRY_EVENT_STATE, address, bytes);
}

CUresult mem_create(const Row& row, PFN_cuMemCreate_v10020 next, CUmemGenericAllocationHandle* handle, size_t bytes,
                    const CUmemAllocationProp* properties, unsigned long long flags) {
  const CUresult result = next(handle, bytes, properties, flags);
  return noted(row, result, FOUNDRY_EVENT_STATE, result == CUDA_SUCCESS && handle != nullptr ? *handle : 0, bytes);
}

CUresult mem_release(const Row& row, PFN_cuMemRelease_v10020 next, CUmemGenericAllocationHandle handle) {
  return noted(row, next(handle), FOUNDRY_EVENT_STATE, handle, 0);
}

CUresult mem_map(const Row& row, PFN_cuMemMap_v10020 next, CUdeviceptr address, size_t bytes, size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return noted(row, next(address, bytes, offset, handle, flags), FOUNDRY_EVENT_MAP, address, bytes);
}

CUresult mem_unmap(const Row& row, PFN_cuMemUnmap_v10020 next, CUdeviceptr address, size_t bytes) {
  return noted(row, next(address, bytes), FOUNDRY_EVENT_UNMAP, address, bytes);
}

}  // namespace foundry::hook
