// Contexts: primary ones, created ones, the stack of each thread, limits, peers.
#include "csrc/sim/context.h"

#include <vector>

#include "csrc/sim/capture.h"
#include "csrc/sim/lifetime.h"
#include "csrc/sim/stream.h"

namespace foundry::sim {
namespace {

thread_local std::vector<CUcontext> t_stack;

constexpr unsigned kKnownFlags = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX |
                                 CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS;

std::shared_ptr<Context> make_context(Device& device, unsigned flags, bool primary) {
  static unsigned long long last_id = 0;
  auto context = std::make_shared<Context>();
  context->device = &device;
  context->flags = flags;
  context->primary = primary;
  context->id = ++last_id;
  context->limits[CU_LIMIT_STACK_SIZE] = 1024;
  context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7340032;
  context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608;
  context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  context->handle = contexts().add(context);
  context->legacy = make_default_stream(*context, false);
  return context;
}

void end_context(Context& context) {
  synchronize_context(context);
  context.alive = false;
  release_executables_of(context);
  release_streams_of(context);
  release_events_of(context);
  release_modules_of(context);
  release_memory_of(context);
  context.legacy.reset();
  context.per_thread.clear();
  context.sticky = CUDA_SUCCESS;
}

CUresult find_device(CUdevice dev, Device** device) {
  *device = device_at(dev);
  return *device != nullptr ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", dev);
}

CUresult create(CUcontext* out, unsigned flags, CUdevice dev) {
  Device* device;
  SIM_TRY(find_device(dev, &device));
  if (out == nullptr || (flags & ~kKnownFlags) != 0) return fail(CUDA_ERROR_INVALID_VALUE, "flags 0x%x", flags);
  *out = make_context(*device, flags, false)->handle;
  t_stack.push_back(*out);
  return CUDA_SUCCESS;
}

CUresult primary_release(CUdevice dev) {
  Device* device;
  SIM_TRY(find_device(dev, &device));
  if (device->primary_references == 0) {
    return fail(CUDA_ERROR_INVALID_CONTEXT, "the primary context of device %d is not retained", dev);
  }
  if (--device->primary_references == 0) end_context(*device->primary);
  return CUDA_SUCCESS;
}

CUresult primary_reset(CUdevice dev) {
  Device* device;
  SIM_TRY(find_device(dev, &device));
  SIM_TRY(forbid_in_capture("resetting a primary context"));
  device->primary_references = 0;
  if (device->primary != nullptr && device->primary->alive) end_context(*device->primary);
  return CUDA_SUCCESS;
}

CUresult primary_set_flags(CUdevice dev, unsigned flags) {
  Device* device;
  SIM_TRY(find_device(dev, &device));
  if ((flags & ~kKnownFlags) != 0) return fail(CUDA_ERROR_INVALID_VALUE, "flags 0x%x", flags);
  device->primary_flags = flags;
  if (device->primary != nullptr) device->primary->flags = flags;
  return CUDA_SUCCESS;
}

CUresult synchronize(Context& context) {
  SIM_TRY(forbid_in_capture("synchronizing a context"));
  synchronize_context(context);
  return context.sticky;
}

}  // namespace

HandleTable<Context, CUcontext, Kind::kContext>& contexts() {
  static auto* table = new HandleTable<Context, CUcontext, Kind::kContext>;
  return *table;
}

Context* current_context_or_null() { return t_stack.empty() ? nullptr : contexts().get(t_stack.back()); }

CUresult current_context(Context** context) {
  if (t_stack.empty() || t_stack.back() == nullptr) {
    return fail(CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
  }
  *context = contexts().get(t_stack.back());
  if (*context == nullptr || !(*context)->alive) {
    return fail(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context of this thread is destroyed");
  }
  return (*context)->sticky;
}

CUresult find_context(CUcontext handle, Context** context) {
  if (handle == nullptr) return current_context(context);
  *context = contexts().get(handle);
  if (*context == nullptr)
    return fail(CUDA_ERROR_INVALID_CONTEXT, "context %p was %s", handle, contexts().why_not(handle));
  if (!(*context)->alive) return fail(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context %p is destroyed", handle);
  return CUDA_SUCCESS;
}

SIM_API(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice dev), (context, dev)) {
  Device* device;
  SIM_TRY(find_device(dev, &device));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device->primary == nullptr) {
    device->primary = make_context(*device, device->primary_flags, true);
  } else if (!device->primary->alive) {
    device->primary->alive = true;
    device->primary->legacy = make_default_stream(*device->primary, false);
  }
  ++device->primary_references;
  *context = device->primary->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuDevicePrimaryCtxRelease, (CUdevice dev), (dev)) { return primary_release(dev); }
SIM_API(cuDevicePrimaryCtxRelease_v2, (CUdevice dev), (dev)) { return primary_release(dev); }
SIM_API(cuDevicePrimaryCtxReset, (CUdevice dev), (dev)) { return primary_reset(dev); }
SIM_API(cuDevicePrimaryCtxReset_v2, (CUdevice dev), (dev)) { return primary_reset(dev); }
SIM_API(cuDevicePrimaryCtxSetFlags, (CUdevice dev, unsigned flags), (dev, flags)) {
  return primary_set_flags(dev, flags);
}
SIM_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned flags), (dev, flags)) {
  return primary_set_flags(dev, flags);
}

SIM_API(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned* flags, int* active), (dev, flags, active)) {
  Device* device;
  SIM_TRY(find_device(dev, &device));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = device->primary_flags;
  *active = device->primary != nullptr && device->primary->alive;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxCreate_v2, (CUcontext * out, unsigned flags, CUdevice dev), (out, flags, dev)) {
  return create(out, flags, dev);
}

SIM_API(cuCtxCreate_v3, (CUcontext * out, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice dev),
        (out, affinity, count, flags, dev)) {
  if (count != 0) return fail(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "execution affinity is not simulated");
  return create(out, flags, dev);
}

SIM_API(cuCtxCreate_v4, (CUcontext * out, CUctxCreateParams* params, unsigned flags, CUdevice dev),
        (out, params, flags, dev)) {
  if (params != nullptr && (params->numExecAffinityParams != 0 || params->cigParams != nullptr)) {
    return fail(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "execution affinity and CIG contexts are not simulated");
  }
  return create(out, flags, dev);
}

SIM_API(cuCtxDestroy_v2, (CUcontext handle), (handle)) {
  auto context = contexts().find(handle);
  if (context == nullptr || handle == nullptr) {
    return fail(CUDA_ERROR_INVALID_CONTEXT, "context %p was %s", handle, contexts().why_not(handle));
  }
  if (context->primary) return fail(CUDA_ERROR_INVALID_CONTEXT, "a primary context is released, not destroyed");
  SIM_TRY(forbid_in_capture("destroying a context"));
  end_context(*context);
  contexts().remove(handle);
  if (!t_stack.empty() && t_stack.back() == handle) t_stack.pop_back();
  return CUDA_SUCCESS;
}

SIM_API(cuCtxPushCurrent_v2, (CUcontext handle), (handle)) {
  if (handle == nullptr) return fail(CUDA_ERROR_INVALID_CONTEXT, "null context");
  Context* context;
  SIM_TRY(find_context(handle, &context));
  t_stack.push_back(handle);
  return CUDA_SUCCESS;
}

SIM_API(cuCtxPopCurrent_v2, (CUcontext * out), (out)) {
  if (t_stack.empty()) return fail(CUDA_ERROR_INVALID_CONTEXT, "the stack of this thread is empty");
  if (out != nullptr) *out = t_stack.back();
  t_stack.pop_back();
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetCurrent, (CUcontext handle), (handle)) {
  if (handle == nullptr) {
    if (!t_stack.empty()) t_stack.pop_back();
    return CUDA_SUCCESS;
  }
  Context* context;
  SIM_TRY(find_context(handle, &context));
  if (t_stack.empty()) t_stack.push_back(nullptr);
  t_stack.back() = handle;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCurrent, (CUcontext * out), (out)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = t_stack.empty() ? nullptr : t_stack.back();
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetDevice, (CUdevice * dev), (dev)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (dev == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *dev = context->device->ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetDevice_v2, (CUdevice * dev, CUcontext handle), (dev, handle)) {
  Context* context;
  SIM_TRY(find_context(handle, &context));
  if (dev == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *dev = context->device->ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetId, (CUcontext handle, unsigned long long* id), (handle, id)) {
  Context* context;
  SIM_TRY(find_context(handle, &context));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetFlags, (unsigned* flags), (flags)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetFlags, (unsigned flags), (flags)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if ((flags & ~kKnownFlags) != 0) return fail(CUDA_ERROR_INVALID_VALUE, "flags 0x%x", flags);
  context->flags = flags;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSynchronize, (void), ()) {
  Context* context;
  SIM_TRY(current_context(&context));
  return synchronize(*context);
}

SIM_API(cuCtxSynchronize_v2, (CUcontext handle), (handle)) {
  Context* context;
  SIM_TRY(find_context(handle, &context));
  return synchronize(*context);
}

SIM_API(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (limit < 0 || limit >= CU_LIMIT_MAX) return fail(CUDA_ERROR_UNSUPPORTED_LIMIT, "unknown limit %d", limit);
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetLimit, (size_t* value, CUlimit limit), (value, limit)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return fail(CUDA_ERROR_UNSUPPORTED_LIMIT, "unknown limit %d", limit);
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCacheConfig, (CUfunc_cache * config), (config)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = context->cache_config;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetCacheConfig, (CUfunc_cache config), (config)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config = config;
  return CUDA_SUCCESS;
}

// Bank sizes are no matter since compute capability 5.0.
SIM_API(cuCtxGetSharedMemConfig, (CUsharedconfig * config), (config)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}
SIM_API(cuCtxSetSharedMemConfig, (CUsharedconfig config), (config)) {
  Context* context;
  return current_context(&context);
}

SIM_API(cuCtxGetApiVersion, (CUcontext handle, unsigned* version), (handle, version)) {
  Context* context;
  SIM_TRY(find_context(handle, &context));
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetStreamPriorityRange, (int* least, int* greatest), (least, greatest)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags)) {
  Context *context, *other;
  SIM_TRY(current_context(&context));
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  SIM_TRY(find_context(peer, &other));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (other->device == context->device) return fail(CUDA_ERROR_INVALID_DEVICE, "a device is no peer of itself");
  return context->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

SIM_API(cuCtxDisablePeerAccess, (CUcontext peer), (peer)) {
  Context* context;
  SIM_TRY(current_context(&context));
  return context->peers.erase(peer) == 1 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace foundry::sim
