// What the driver says about an address.
#include <cstring>

#include "csrc/sim/capture.h"
#include "csrc/sim/memory.h"
#include "csrc/sim/stream.h"

namespace foundry::sim {
namespace {

template <class T>
CUresult give(void* out, T value) {
  std::memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

int ordinal(const Range& range) {
  if (range.device != nullptr) return range.device->ordinal;
  Context* context = contexts().get(range.context);
  return context != nullptr ? context->device->ordinal : -1;
}

// Null range: the driver does not know the address, and there is a null answer for those attributes that have one.
CUresult pointer_attribute(void* out, CUpointer_attribute which, CUdeviceptr address, Range* range) {
  bool vmm = range != nullptr && range->kind == MemoryKind::kMapping;
  if (which == CU_POINTER_ATTRIBUTE_MAPPED) return give(out, static_cast<int>(range != nullptr));
  if (which == CU_POINTER_ATTRIBUTE_IS_MANAGED) {
    return give(out, static_cast<int>(range != nullptr && range->kind == MemoryKind::kManaged));
  }
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      if (vmm) return give<CUcontext>(out, nullptr);
      return give(out, range->context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(out, static_cast<unsigned>(range->host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!range->host() && range->kind != MemoryKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
      return give(out, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return give(out, static_cast<int>(range->sync_memops));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give(out, range->id);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give(out, ordinal(*range));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return give(out, static_cast<int>(0));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give(out, static_cast<CUdeviceptr>(range->base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give(out, range->bytes);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give(out, static_cast<unsigned long long>(vmm ? range->physical->prop.requestedHandleTypes : 0));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return give(out, static_cast<int>(0));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return give(out, static_cast<int>(range->writable   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                        : range->readable ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                          : CU_MEM_ACCESS_FLAGS_PROT_NONE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(out, range->pool);
    default:
      return fail(CUDA_ERROR_INVALID_VALUE, "unknown pointer attribute %d", static_cast<int>(which));
  }
}

bool known_attribute(CUpointer_attribute which) {
  return which >= CU_POINTER_ATTRIBUTE_CONTEXT && which <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE &&
         which != CU_POINTER_ATTRIBUTE_P2P_TOKENS;
}

std::size_t attribute_bytes(CUpointer_attribute which) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return 8;
    default:
      return 4;
  }
}

}  // namespace

SIM_API(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t* bytes, CUdeviceptr address), (base, bytes, address)) {
  Range* range = find_range(address);
  if (range == nullptr || range->freed) {
    return fail(CUDA_ERROR_NOT_FOUND, "0x%llx is no memory of the driver", address);
  }
  if (base != nullptr) *base = range->base;
  if (bytes != nullptr) *bytes = range->bytes;
  return CUDA_SUCCESS;
}

SIM_API(cuPointerGetAttribute, (void* out, CUpointer_attribute which, CUdeviceptr address), (out, which, address)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!known_attribute(which)) return fail(CUDA_ERROR_INVALID_VALUE, "unknown pointer attribute %d", which);
  Range* range = find_range(address);
  // Asking about any word is how callers find out whether it is a pointer: an answer, not a mistake worth a log line.
  if (range == nullptr || range->freed) return CUDA_ERROR_INVALID_VALUE;
  return pointer_attribute(out, which, address, range);
}

SIM_API(cuPointerGetAttributes, (unsigned count, CUpointer_attribute* which, void** out, CUdeviceptr address),
        (count, which, out, address)) {
  if (count == 0 || which == nullptr || out == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  Range* range = find_range(address);
  if (range != nullptr && range->freed) range = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    if (out[i] == nullptr || !known_attribute(which[i])) {
      return fail(CUDA_ERROR_INVALID_VALUE, "unknown pointer attribute %d", which[i]);
    }
    std::memset(out[i], which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL && range == nullptr ? 0xff : 0,
                attribute_bytes(which[i]));
    pointer_attribute(out[i], which[i], address, range);  // one that does not apply stays null
  }
  return CUDA_SUCCESS;
}

SIM_API(cuPointerSetAttribute, (const void* value, CUpointer_attribute which, CUdeviceptr address),
        (value, which, address)) {
  Range* range = find_range(address);
  if (value == nullptr || range == nullptr || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return fail(CUDA_ERROR_INVALID_VALUE, "pointer attribute %d at 0x%llx cannot be set", which, address);
  }
  range->sync_memops = *static_cast<const unsigned*>(value) != 0;
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetHandleForAddressRange,
        (void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned long long flags),
        (handle, address, bytes, type, flags)) {
  return fail(CUDA_ERROR_NOT_SUPPORTED, "DMA buffers are not simulated");
}

// Advice about managed memory changes nothing here.
static CUresult check_managed(CUdeviceptr address, std::size_t bytes) {
  Range* range = find_range(address);
  if (range != nullptr && range->kind == MemoryKind::kManaged && bytes <= range->base + range->bytes - address) {
    return CUDA_SUCCESS;
  }
  return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx with %zu bytes is no managed memory", address, bytes);
}
SIM_API(cuMemAdvise, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
        (address, bytes, advice, device)) {
  return check_managed(address, bytes);
}
SIM_API(cuMemAdvise_v2, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location),
        (address, bytes, advice, location)) {
  return check_managed(address, bytes);
}

static CUresult prefetch(CUdeviceptr address, std::size_t bytes, CUstream handle) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  SIM_TRY(refuse_capturing(*stream, "cuMemPrefetchAsync"));
  return check_managed(address, bytes);
}
SIM_API_PTSZ(cuMemPrefetchAsync, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
             (address, bytes, device, stream)) {
  return prefetch(address, bytes, stream);
}
SIM_API_PTSZ(cuMemPrefetchAsync_v2,
             (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
             (address, bytes, location, flags, stream)) {
  return prefetch(address, bytes, stream);
}

}  // namespace foundry::sim
