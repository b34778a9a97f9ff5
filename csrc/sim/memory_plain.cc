// Plain and managed device memory, and the answers for legacy IPC.
#include <cstring>

#include "csrc/sim/capture.h"
#include "csrc/sim/memory.h"
#include "csrc/sim/stream.h"

namespace foundry::sim {

static CUresult allocate_plain(CUdeviceptr* out, std::size_t bytes, MemoryKind kind) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(forbid_in_capture("an allocation"));
  Range* range;
  SIM_TRY(allocate(*context, kind, bytes, &range));
  *out = range->base;
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetInfo_v2, (size_t* available, size_t* total), (available, total)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (available != nullptr) *available = context->device->memory - context->device->used;
  if (total != nullptr) *total = context->device->memory;
  return CUDA_SUCCESS;
}

SIM_API(cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes), (out, bytes)) {
  return allocate_plain(out, bytes, MemoryKind::kDevice);
}

SIM_API(cuMemAllocPitch_v2, (CUdeviceptr * out, size_t* pitch, size_t width, size_t height, unsigned element),
        (out, pitch, width, height, element)) {
  if (pitch == nullptr || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "width %zu, height %zu, element size %u", width, height, element);
  }
  *pitch = (width + 511) / 512 * 512;
  if (height > SIZE_MAX / *pitch) return fail(CUDA_ERROR_OUT_OF_MEMORY, "%zu rows of %zu bytes", height, *pitch);
  return allocate_plain(out, *pitch * height, MemoryKind::kDevice);
}

SIM_API(cuMemAllocManaged, (CUdeviceptr * out, size_t bytes, unsigned flags), (out, bytes, flags)) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
    return fail(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
  }
  return allocate_plain(out, bytes, MemoryKind::kManaged);
}

SIM_API(cuMemFree_v2, (CUdeviceptr address), (address)) {
  if (address == 0) return CUDA_SUCCESS;
  auto it = ranges().find(address);
  if (it == ranges().end()) {
    Range* around = find_range(address);
    return fail(
        CUDA_ERROR_INVALID_VALUE, "0x%llx is %s", address,
        around != nullptr ? "inside an allocation, not its start" : "no allocation: never made, or freed already");
  }
  MemoryKind kind = it->second.kind;
  if (kind != MemoryKind::kDevice && kind != MemoryKind::kManaged && kind != MemoryKind::kPooled) {
    return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx did not come from cuMemAlloc", address);
  }
  if (it->second.freed) return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx is freed already", address);
  SIM_TRY(forbid_in_capture("cuMemFree"));
  return wait_and_release(address);
}

// Legacy IPC would need a second process that maps this one's memory; applications fall back on NOT_SUPPORTED.
SIM_API(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address), (handle, address)) {
  if (handle == nullptr || find_range(address) == nullptr) {
    return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx is no memory of the driver", address);
  }
  return fail(CUDA_ERROR_NOT_SUPPORTED, "legacy IPC is not simulated");
}
SIM_API(cuIpcOpenMemHandle, (CUdeviceptr*, CUipcMemHandle, unsigned), ({}, {}, {})) {
  return fail(CUDA_ERROR_NOT_SUPPORTED, "legacy IPC is not simulated");
}
SIM_API(cuIpcOpenMemHandle_v2, (CUdeviceptr*, CUipcMemHandle, unsigned), ({}, {}, {})) {
  return fail(CUDA_ERROR_NOT_SUPPORTED, "legacy IPC is not simulated");
}
SIM_API(cuIpcCloseMemHandle, (CUdeviceptr), ({})) {
  return fail(CUDA_ERROR_NOT_SUPPORTED, "legacy IPC is not simulated");
}
SIM_API(cuIpcGetEventHandle, (CUipcEventHandle*, CUevent), ({}, {})) {
  return fail(CUDA_ERROR_NOT_SUPPORTED, "legacy IPC is not simulated");
}
SIM_API(cuIpcOpenEventHandle, (CUevent*, CUipcEventHandle), ({}, {})) {
  return fail(CUDA_ERROR_NOT_SUPPORTED, "legacy IPC is not simulated");
}

}  // namespace foundry::sim
