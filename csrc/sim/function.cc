// Functions and kernels: identity, parameters, attributes and the driver's rules about them, occupancy.
#include <algorithm>

#include "csrc/sim/library.h"

namespace foundry::sim {
namespace {

const CUfunction_attribute kMaxDynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

int default_of(const ImageKernel& image, int binary_version, CUfunction_attribute which) {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return static_cast<int>(image.max_threads_per_block);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(image.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(image.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(image.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return binary_version;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return std::max(0, kDefaultDynamicShared - static_cast<int>(image.static_shared_bytes));
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return -1;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      return image.required_cluster.x != 0;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      return static_cast<int>(image.required_cluster.x);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      return static_cast<int>(image.required_cluster.y);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return static_cast<int>(image.required_cluster.z);
    default:
      return 0;
  }
}

bool known(CUfunction_attribute which) { return which >= 0 && which < CU_FUNC_ATTRIBUTE_MAX; }

CUresult check_set(const ImageKernel& image, const Device& device, CUfunction_attribute which, int value) {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      int limit = device.shared_optin - static_cast<int>(image.static_shared_bytes);
      if (value >= 0 && value <= limit) return CUDA_SUCCESS;
      return fail(CUDA_ERROR_INVALID_VALUE, "%s: %d bytes of dynamic shared memory, the limit is %d",
                  image.name.c_str(), value, limit);
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_VALUE, "carveout %d", value);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      if (image.required_cluster.x != 0) {
        return fail(CUDA_ERROR_NOT_PERMITTED, "%s was compiled with its cluster size", image.name.c_str());
      }
      return value >= 0 ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_VALUE, "cluster size %d", value);
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return value == 0 || value == 1 ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_VALUE, "value %d", value);
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return value >= 0 && value <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING
                 ? CUDA_SUCCESS
                 : fail(CUDA_ERROR_INVALID_VALUE, "policy %d", value);
    default:
      return fail(CUDA_ERROR_INVALID_VALUE, "function attribute %d cannot be set", static_cast<int>(which));
  }
}

CUresult param_info(const ImageKernel& image, std::size_t index, std::size_t* offset, std::size_t* size) {
  if (offset == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  if (index >= image.param_sizes.size()) return CUDA_ERROR_INVALID_VALUE;  // how callers find the end
  *offset = image.param_offsets[index];
  if (size != nullptr) *size = image.param_sizes[index];
  return CUDA_SUCCESS;
}

// For the calls where a kernel does not stand in for a function.
CUresult plain_function(CUfunction handle, std::shared_ptr<Function>* function) {
  *function = functions().find(handle);
  if (*function != nullptr) return CUDA_SUCCESS;
  bool kernel = kernels().get(reinterpret_cast<CUkernel>(handle)) != nullptr;
  return fail(CUDA_ERROR_INVALID_HANDLE, "function %p %s", static_cast<void*>(handle),
              kernel ? "is a kernel" : functions().why_not(handle));
}

}  // namespace

CUresult find_kernel(CUkernel handle, std::shared_ptr<Kernel>* kernel) {
  *kernel = kernels().find(handle);
  if (*kernel != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_HANDLE, "kernel %p was %s", static_cast<void*>(handle), kernels().why_not(handle));
}

CUresult function_of(const std::shared_ptr<Kernel>& kernel, Context& context, std::shared_ptr<Function>* function) {
  std::shared_ptr<Module> module;
  SIM_TRY(module_of(*kernel->library, context, &module));
  auto it = module->functions.find(kernel->image.name);
  if (it == module->functions.end()) {
    return fail(CUDA_ERROR_NOT_FOUND, "%s is not in the code for this device", kernel->image.name.c_str());
  }
  *function = it->second;
  return CUDA_SUCCESS;
}

CUresult find_function(CUfunction handle, Context* context, std::shared_ptr<Function>* function) {
  if (auto kernel = kernels().find(reinterpret_cast<CUkernel>(handle))) {
    if (context == nullptr) SIM_TRY(current_context(&context));
    return function_of(kernel, *context, function);
  }
  return plain_function(handle, function);
}

int attribute_value(const Function& function, CUfunction_attribute which) {
  auto own = function.attributes.find(which);
  if (own != function.attributes.end()) return own->second;
  if (function.kernel != nullptr) {
    auto device = function.kernel->attributes.find(function.context->device->ordinal);
    if (device != function.kernel->attributes.end()) {
      auto set = device->second.find(which);
      if (set != device->second.end()) return set->second;
    }
  }
  return default_of(function.image, function.binary_version, which);
}

CUresult function_attribute(const Function& function, CUfunction_attribute which, int* value) {
  if (!known(which)) return fail(CUDA_ERROR_INVALID_VALUE, "unknown function attribute %d", static_cast<int>(which));
  *value = attribute_value(function, which);
  return CUDA_SUCCESS;
}

SIM_API(cuFuncGetAttribute, (int* value, CUfunction_attribute which, CUfunction handle), (value, which, handle)) {
  std::shared_ptr<Function> function;
  SIM_TRY(plain_function(handle, &function));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return function_attribute(*function, which, value);
}

SIM_API(cuFuncSetAttribute, (CUfunction handle, CUfunction_attribute which, int value), (handle, which, value)) {
  std::shared_ptr<Function> function;
  SIM_TRY(plain_function(handle, &function));
  SIM_TRY(check_set(function->image, *function->context->device, which, value));
  function->attributes[which] = value;
  return CUDA_SUCCESS;
}

SIM_API(cuFuncSetCacheConfig, (CUfunction handle, CUfunc_cache config), (handle, config)) {
  std::shared_ptr<Function> function;
  return plain_function(handle, &function);
}

SIM_API(cuFuncSetSharedMemConfig, (CUfunction handle, CUsharedconfig config), (handle, config)) {
  std::shared_ptr<Function> function;
  return plain_function(handle, &function);
}

SIM_API(cuFuncGetModule, (CUmodule * out, CUfunction handle), (out, handle)) {
  std::shared_ptr<Function> function;
  SIM_TRY(plain_function(handle, &function));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = function->module->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuFuncGetName, (const char** name, CUfunction handle), (name, handle)) {
  std::shared_ptr<Function> function;
  SIM_TRY(plain_function(handle, &function));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->image.name.c_str();
  return CUDA_SUCCESS;
}

SIM_API(cuFuncGetParamInfo, (CUfunction handle, size_t index, size_t* offset, size_t* size),
        (handle, index, offset, size)) {
  std::shared_ptr<Function> function;
  SIM_TRY(plain_function(handle, &function));
  return param_info(function->image, index, offset, size);
}

SIM_API(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction handle), (state, handle)) {
  std::shared_ptr<Function> function;
  SIM_TRY(plain_function(handle, &function));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = function->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

SIM_API(cuFuncLoad, (CUfunction handle), (handle)) {
  std::shared_ptr<Function> function;
  SIM_TRY(plain_function(handle, &function));
  function->loaded = true;
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetFunction, (CUfunction * out, CUkernel handle), (out, handle)) {
  std::shared_ptr<Kernel> kernel;
  SIM_TRY(find_kernel(handle, &kernel));
  Context* context;
  SIM_TRY(current_context(&context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  SIM_TRY(function_of(kernel, *context, &function));
  function->loaded = true;
  *out = function->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetLibrary, (CUlibrary * out, CUkernel handle), (out, handle)) {
  std::shared_ptr<Kernel> kernel;
  SIM_TRY(find_kernel(handle, &kernel));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = kernel->library->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetName, (const char** name, CUkernel handle), (name, handle)) {
  std::shared_ptr<Kernel> kernel;
  SIM_TRY(find_kernel(handle, &kernel));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->image.name.c_str();
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetParamInfo, (CUkernel handle, size_t index, size_t* offset, size_t* size),
        (handle, index, offset, size)) {
  std::shared_ptr<Kernel> kernel;
  SIM_TRY(find_kernel(handle, &kernel));
  return param_info(kernel->image, index, offset, size);
}

SIM_API(cuKernelGetAttribute, (int* value, CUfunction_attribute which, CUkernel handle, CUdevice dev),
        (value, which, handle, dev)) {
  std::shared_ptr<Kernel> kernel;
  SIM_TRY(find_kernel(handle, &kernel));
  Device* device = device_at(dev);
  if (device == nullptr) return fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", dev);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!known(which)) return fail(CUDA_ERROR_INVALID_VALUE, "unknown function attribute %d", static_cast<int>(which));
  const FunctionAttributes& set = kernel->attributes[dev];
  auto it = set.find(which);
  *value = it != set.end() ? it->second : default_of(kernel->image, device->cc_major * 10 + device->cc_minor, which);
  return CUDA_SUCCESS;
}

SIM_API(cuKernelSetAttribute, (CUfunction_attribute which, int value, CUkernel handle, CUdevice dev),
        (which, value, handle, dev)) {
  std::shared_ptr<Kernel> kernel;
  SIM_TRY(find_kernel(handle, &kernel));
  Device* device = device_at(dev);
  if (device == nullptr) return fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", dev);
  SIM_TRY(check_set(kernel->image, *device, which, value));
  kernel->attributes[dev][which] = value;
  return CUDA_SUCCESS;
}

SIM_API(cuKernelSetCacheConfig, (CUkernel handle, CUfunc_cache config, CUdevice dev), (handle, config, dev)) {
  std::shared_ptr<Kernel> kernel;
  return find_kernel(handle, &kernel);
}

// Occupancy by threads, registers and shared memory, the three limits that callers reason about.
static CUresult active_blocks(int* count, CUfunction handle, int threads, std::size_t dynamic_shared) {
  std::shared_ptr<Function> function;
  SIM_TRY(find_function(handle, nullptr, &function));
  if (count == nullptr || threads <= 0) return fail(CUDA_ERROR_INVALID_VALUE, "%d threads", threads);
  *count = 0;
  const ImageKernel& image = function->image;
  if (threads > static_cast<int>(image.max_threads_per_block)) return CUDA_SUCCESS;
  int warps = (threads + 31) / 32;
  int by_threads = 2048 / (warps * 32);
  int by_registers = image.registers == 0 ? by_threads : 65536 / static_cast<int>(image.registers * warps * 32);
  std::size_t shared = image.static_shared_bytes + dynamic_shared + 1024;
  int by_shared = static_cast<int>(static_cast<std::size_t>(function->context->device->shared_per_sm) / shared);
  if (dynamic_shared > static_cast<std::size_t>(attribute_value(*function, kMaxDynamic))) by_shared = 0;
  *count = std::min({by_threads, by_registers, by_shared, 32});
  return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int* count, CUfunction handle, int threads, size_t shared),
        (count, handle, threads, shared)) {
  return active_blocks(count, handle, threads, shared);
}
SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int* count, CUfunction handle, int threads, size_t shared, unsigned flags),
        (count, handle, threads, shared, flags)) {
  return active_blocks(count, handle, threads, shared);
}

SIM_API(cuOccupancyMaxPotentialBlockSize,
        (int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of, size_t shared, int limit),
        (grid, block, handle, shared_of, shared, limit)) {
  std::shared_ptr<Function> function;
  SIM_TRY(find_function(handle, nullptr, &function));
  if (grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int best_threads = 0;
  int top = static_cast<int>(function->image.max_threads_per_block);
  if (limit > 0) top = std::min(top, limit);
  *grid = *block = 0;
  for (int threads = top / 32 * 32; threads >= 32; threads -= 32) {
    int blocks = 0;
    SIM_TRY(active_blocks(&blocks, handle, threads, shared_of != nullptr ? shared_of(threads) : shared));
    if (blocks * threads <= best_threads) continue;
    best_threads = blocks * threads;
    *block = threads;
    *grid = blocks * function->context->device->sm_count;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxPotentialClusterSize, (int* size, CUfunction handle, const CUlaunchConfig* config),
        (size, handle, config)) {
  std::shared_ptr<Function> function;
  SIM_TRY(find_function(handle, nullptr, &function));
  if (size == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function->context->device->cc_major < 9) return fail(CUDA_ERROR_NOT_SUPPORTED, "this device has no clusters");
  *size = attribute_value(*function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0 ? 16 : 8;
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
