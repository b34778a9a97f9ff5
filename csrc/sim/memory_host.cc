// Pinned host memory: allocated by the driver, or the client's own and registered.
#include <sys/mman.h>

#include "csrc/sim/capture.h"
#include "csrc/sim/memory.h"

namespace foundry::sim {

static CUresult allocate_host(void** out, std::size_t bytes, unsigned flags) {
  Context* context;
  SIM_TRY(current_context(&context));
  constexpr unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (out == nullptr || bytes == 0 || (flags & ~known) != 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%zu bytes, flags 0x%x", bytes, flags);
  }
  SIM_TRY(forbid_in_capture("a host allocation"));
  void* at = mmap(nullptr, (bytes + 4095) / 4096 * 4096, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return fail(CUDA_ERROR_OUT_OF_MEMORY, "the host has no %zu bytes", bytes);
  Range range;
  range.base = reinterpret_cast<std::uintptr_t>(at);
  range.bytes = bytes;
  range.kind = MemoryKind::kHost;
  range.context = context->handle;
  range.flags = flags;
  add_range(std::move(range));
  *out = at;
  return CUDA_SUCCESS;
}

static CUresult find_host(void* pointer, MemoryKind kind, std::uintptr_t* base) {
  *base = reinterpret_cast<std::uintptr_t>(pointer);
  auto it = ranges().find(*base);
  return it != ranges().end() && it->second.kind == kind && !it->second.freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuMemAllocHost_v2, (void** out, size_t bytes), (out, bytes)) { return allocate_host(out, bytes, 0); }
SIM_API(cuMemHostAlloc, (void** out, size_t bytes, unsigned flags), (out, bytes, flags)) {
  return allocate_host(out, bytes, flags);
}

SIM_API(cuMemFreeHost, (void* pointer), (pointer)) {
  if (pointer == nullptr) return CUDA_SUCCESS;
  std::uintptr_t base;
  if (find_host(pointer, MemoryKind::kHost, &base) != CUDA_SUCCESS) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%p did not come from the driver, or is freed already", pointer);
  }
  SIM_TRY(forbid_in_capture("cuMemFreeHost"));
  return wait_and_release(base);
}

SIM_API(cuMemHostRegister_v2, (void* pointer, size_t bytes, unsigned flags), (pointer, bytes, flags)) {
  Context* context;
  SIM_TRY(current_context(&context));
  constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                             CU_MEMHOSTREGISTER_READ_ONLY;
  if (pointer == nullptr || bytes == 0 || (flags & ~known) != 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%zu bytes at %p, flags 0x%x", bytes, pointer, flags);
  }
  auto base = reinterpret_cast<std::uintptr_t>(pointer);
  auto next = ranges().lower_bound(base);
  if (find_range(base) != nullptr || (next != ranges().end() && next->first < base + bytes)) {
    return fail(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "%p with %zu bytes overlaps memory of the driver", pointer,
                bytes);
  }
  SIM_TRY(forbid_in_capture("cuMemHostRegister"));
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = MemoryKind::kRegistered;
  range.context = context->handle;
  range.flags = flags;
  range.writable = (flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0;
  add_range(std::move(range));
  return CUDA_SUCCESS;
}

SIM_API(cuMemHostUnregister, (void* pointer), (pointer)) {
  std::uintptr_t base;
  if (find_host(pointer, MemoryKind::kRegistered, &base) != CUDA_SUCCESS) {
    return fail(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "%p is not registered", pointer);
  }
  SIM_TRY(forbid_in_capture("cuMemHostUnregister"));
  return wait_and_release(base);
}

SIM_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void* pointer, unsigned flags), (out, pointer, flags)) {
  Range* range = find_range(reinterpret_cast<std::uintptr_t>(pointer));
  if (out == nullptr || flags != 0 || range == nullptr || !range->host()) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%p is no pinned host memory", pointer);
  }
  *out = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

SIM_API(cuMemHostGetFlags, (unsigned* flags, void* pointer), (flags, pointer)) {
  Range* range = find_range(reinterpret_cast<std::uintptr_t>(pointer));
  if (flags == nullptr || range == nullptr || range->kind != MemoryKind::kHost) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%p did not come from cuMemHostAlloc", pointer);
  }
  *flags = range->flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
