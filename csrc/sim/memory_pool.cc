// Stream-ordered allocation. Every allocation has memory of its own: a pool bounds and counts, it does not reuse.
#include <vector>

#include "csrc/sim/capture.h"
#include "csrc/sim/graph_memory.h"
#include "csrc/sim/memory.h"
#include "csrc/sim/pool.h"
#include "csrc/sim/stream.h"

namespace foundry::sim {

HandleTable<Pool, CUmemoryPool, Kind::kPool>& pools() {
  static auto* table = new HandleTable<Pool, CUmemoryPool, Kind::kPool>;
  return *table;
}

namespace {

CUmemoryPool make_pool(Device& device, const CUmemPoolProps& props) {
  auto pool = std::make_shared<Pool>();
  pool->device = &device;
  pool->props = props;
  return pool->handle = pools().add(pool);
}

CUresult find_pool(CUmemoryPool handle, Pool** pool) {
  *pool = pools().get(handle);
  if (*pool != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_VALUE, "pool %p was %s", static_cast<void*>(handle), pools().why_not(handle));
}

CUresult default_pool(CUdevice ordinal, Device** device) {
  *device = device_at(ordinal);
  if (*device == nullptr) return fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", ordinal);
  if ((*device)->default_pool == nullptr) {
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    (*device)->default_pool = make_pool(**device, props);
  }
  if ((*device)->current_pool == nullptr) (*device)->current_pool = (*device)->default_pool;
  return CUDA_SUCCESS;
}

CUresult allocate_from(CUdeviceptr* out, std::size_t bytes, Pool& pool, Stream& stream) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream.capture != nullptr) {
    AllocWork work;
    work.params.poolProps = pool.props;
    work.params.bytesize = bytes;
    SIM_TRY(reserve_graph_memory(*stream.context, &work));
    *out = work.params.dptr;
    return submit(stream, std::move(work));
  }
  if (pool.props.maxSize != 0 && pool.used + bytes > pool.props.maxSize) {
    return fail(CUDA_ERROR_OUT_OF_MEMORY, "%zu bytes: the pool has %zu, %zu are in use", bytes, pool.props.maxSize,
                pool.used);
  }
  Range* range;
  SIM_TRY(allocate(*stream.context, MemoryKind::kPooled, bytes, &range));
  range->pool = pool.handle;
  pool.used += range->bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
  *out = range->base;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API_PTSZ(cuMemAllocAsync, (CUdeviceptr * out, size_t bytes, CUstream handle), (out, bytes, handle)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  Device* device;
  SIM_TRY(default_pool(stream->context->device->ordinal, &device));
  Pool* pool;
  SIM_TRY(find_pool(device->current_pool, &pool));
  return allocate_from(out, bytes, *pool, *stream);
}

SIM_API_PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr * out, size_t bytes, CUmemoryPool pool_handle, CUstream handle),
             (out, bytes, pool_handle, handle)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  Pool* pool;
  SIM_TRY(find_pool(pool_handle, &pool));
  return allocate_from(out, bytes, *pool, *stream);
}

SIM_API_PTSZ(cuMemFreeAsync, (CUdeviceptr address, CUstream handle), (address, handle)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  auto it = ranges().find(address);
  if (it != ranges().end() && it->second.kind == MemoryKind::kGraph) {
    if (stream->capture != nullptr) return submit(*stream, FreeWork{address});
    SIM_TRY(check_legacy(*stream));
    enqueue(*stream, [address] { unmap_graph_memory(address); });
    return CUDA_SUCCESS;
  }
  if (it == ranges().end() || it->second.freed ||
      (it->second.kind != MemoryKind::kPooled && it->second.kind != MemoryKind::kDevice)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx is no allocation, or freed already", address);
  }
  if (stream->capture != nullptr) {
    return fail(CUDA_ERROR_INVALID_VALUE, "memory from outside the capture cannot be freed in it");
  }
  SIM_TRY(check_legacy(*stream));
  it->second.freed = true;
  enqueue(*stream, [address] {
    std::lock_guard lock(driver_mutex());
    auto freed = ranges().find(address);
    if (freed == ranges().end()) return;  // the context ended first
    if (Pool* pool = pools().get(freed->second.pool)) pool->used -= freed->second.bytes;
    release_range(address);
  });
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolCreate, (CUmemoryPool * out, const CUmemPoolProps* props), (out, props)) {
  if (out == nullptr || props == nullptr || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return fail(CUDA_ERROR_INVALID_VALUE, "null argument or allocation type");
  }
  Device* device = device_at(props->location.id);
  if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device == nullptr) {
    return fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", props->location.id);
  }
  if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return fail(CUDA_ERROR_NOT_SUPPORTED, "shareable pools");
  *out = make_pool(*device, *props);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolDestroy, (CUmemoryPool handle), (handle)) {
  Pool* pool;
  SIM_TRY(find_pool(handle, &pool));
  if (handle == pool->device->default_pool) return fail(CUDA_ERROR_INVALID_VALUE, "the default pool stays");
  if (pool->device->current_pool == handle) pool->device->current_pool = pool->device->default_pool;
  pools().remove(handle);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolTrimTo, (CUmemoryPool handle, size_t bytes), (handle, bytes)) {
  Pool* pool;
  return find_pool(handle, &pool);  // nothing is kept
}

SIM_API(cuMemPoolSetAttribute, (CUmemoryPool handle, CUmemPool_attribute which, void* value), (handle, which, value)) {
  Pool* pool;
  SIM_TRY(find_pool(handle, &pool));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool->switches[which] = *static_cast<int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold = *static_cast<cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->used_high = pool->used;
      return CUDA_SUCCESS;
    default:
      return fail(CUDA_ERROR_INVALID_VALUE, "pool attribute %d cannot be set", static_cast<int>(which));
  }
}

SIM_API(cuMemPoolGetAttribute, (CUmemoryPool handle, CUmemPool_attribute which, void* value), (handle, which, value)) {
  Pool* pool;
  SIM_TRY(find_pool(handle, &pool));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = pool->switches.count(which) != 0 ? pool->switches[which] : 1;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *static_cast<cuuint64_t*>(value) = pool->release_threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = pool->used_high;
      return CUDA_SUCCESS;
    default:
      return fail(CUDA_ERROR_INVALID_VALUE, "unknown pool attribute %d", static_cast<int>(which));
  }
}

SIM_API(cuMemPoolSetAccess, (CUmemoryPool handle, const CUmemAccessDesc* access, size_t count),
        (handle, access, count)) {
  Pool* pool;
  SIM_TRY(find_pool(handle, &pool));
  if (access == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) pool->access[access[i].location.id] = access[i].flags;
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool handle, CUmemLocation* location),
        (flags, handle, location)) {
  Pool* pool;
  SIM_TRY(find_pool(handle, &pool));
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto it = pool->access.find(location->id);
  bool own = location->id == pool->device->ordinal;
  *flags = it != pool->access.end() ? it->second
           : own                    ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * out, CUdevice dev), (out, dev)) {
  Device* device;
  SIM_TRY(default_pool(dev, &device));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = device->default_pool;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetMemPool, (CUmemoryPool * out, CUdevice dev), (out, dev)) {
  Device* device;
  SIM_TRY(default_pool(dev, &device));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = device->current_pool;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool handle), (dev, handle)) {
  Device* device;
  SIM_TRY(default_pool(dev, &device));
  Pool* pool;
  SIM_TRY(find_pool(handle, &pool));
  if (pool->device != device) return fail(CUDA_ERROR_INVALID_VALUE, "the pool belongs to another device");
  device->current_pool = handle;
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
