// Kernel launches: arguments, attributes, the driver's rules, and the run itself.
#include "csrc/sim/launch.h"

#include <algorithm>
#include <cstring>

#include "csrc/sim/capture.h"
#include "csrc/sim/library.h"
#include "csrc/sim/stream.h"

namespace foundry::sim {

KernelArguments& KernelArguments::operator=(const KernelArguments& other) {
  if (this == &other) return *this;
  storage_ = other.storage_;
  offsets_ = other.offsets_;
  from_extra_ = other.from_extra_;
  bytes_ = other.bytes_;
  point();
  return *this;
}

void KernelArguments::point() {
  auto* base = reinterpret_cast<char*>(storage_.data());
  pointers_.clear();
  for (std::uint32_t offset : offsets_) pointers_.push_back(base + offset);
  extra_[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
  extra_[1] = base;
  extra_[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
  extra_[3] = &bytes_;
  extra_[4] = CU_LAUNCH_PARAM_END;
}

CUresult KernelArguments::take(const Function& function, void** params, void** extra) {
  const ImageKernel& image = function.image;
  const char* name = image.name.c_str();
  std::size_t count = image.param_sizes.size();
  std::size_t needed = count == 0 ? 0 : image.param_offsets.back() + image.param_sizes.back();
  if (params != nullptr && extra != nullptr) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%s: both kernelParams and extra are given", name);
  }
  const void* buffer = nullptr;
  std::size_t bytes = needed;
  if (extra != nullptr) {
    const std::size_t* size = nullptr;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = extra[1];
      } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        size = static_cast<const std::size_t*>(extra[1]);
      } else {
        return fail(CUDA_ERROR_INVALID_VALUE, "%s: unknown entry %p in extra", name, *extra);
      }
    }
    if (size == nullptr || buffer == nullptr || *size < needed) {
      return fail(CUDA_ERROR_INVALID_VALUE, "%s needs %zu bytes of arguments, extra gives %zu", name, needed,
                  size == nullptr ? 0 : *size);
    }
    bytes = *size;
  } else if (params == nullptr && count > 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%s has %zu parameters, no arguments are given", name, count);
  }
  std::vector<std::uint64_t> storage((bytes + 7) / 8);
  auto* base = reinterpret_cast<char*>(storage.data());
  if (buffer != nullptr) std::memcpy(base, buffer, bytes);
  for (std::size_t i = 0; extra == nullptr && i < count; ++i) {
    if (params[i] == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "%s: argument %zu is null", name, i);
    std::memcpy(base + image.param_offsets[i], params[i], image.param_sizes[i]);
  }
  storage_ = std::move(storage);
  offsets_ = image.param_offsets;
  from_extra_ = extra != nullptr;
  bytes_ = bytes;
  point();
  return CUDA_SUCCESS;
}

CUlaunchAttributeValue default_attribute(CUlaunchAttributeID id) {
  CUlaunchAttributeValue value;
  std::memset(&value, 0, sizeof value);
  if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value.memSyncDomainMap.remote = 1;
  if (id == CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) value.sharedMemCarveout = static_cast<unsigned>(-1);
  return value;
}

CUlaunchAttributeValue attribute_of(const KernelWork& kernel, CUlaunchAttributeID id) {
  auto it = kernel.attributes.find(id);
  return it != kernel.attributes.end() ? it->second : default_attribute(id);
}

bool is_node_attribute(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return true;
    default:
      return false;
  }
}

CUresult check_node_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
  if (!is_node_attribute(id)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "a kernel node has no attribute %d", static_cast<int>(id));
  }
  bool ok = true;
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      ok = value.accessPolicyWindow.hitRatio >= 0 && value.accessPolicyWindow.hitRatio <= 1;
      break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      ok = value.clusterSchedulingPolicyPreference >= 0 &&
           value.clusterSchedulingPolicyPreference <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
      break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      ok = value.priority >= kGreatestPriority && value.priority <= kLeastPriority;
      break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      ok = value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT ||
           value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
      break;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      ok = value.sharedMemCarveout <= 100 || value.sharedMemCarveout == static_cast<unsigned>(-1);
      break;
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      ok = value.nvlinkUtilCentricScheduling <= 1;
      break;
    default:
      break;
  }
  return ok ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_VALUE, "a value of launch attribute %d", static_cast<int>(id));
}

static SimDim3 cluster_of(const KernelWork& kernel) {
  CUlaunchAttributeValue value = attribute_of(kernel, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  if (value.clusterDim.x != 0) return {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
  const Function& f = *kernel.function;
  auto required = [&](CUfunction_attribute which) { return static_cast<std::uint32_t>(attribute_value(f, which)); };
  SimDim3 cluster = {required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
                     required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
                     required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)};
  return cluster.x == 0 ? SimDim3{1, 1, 1} : cluster;
}

static CUresult check_cluster(const KernelWork& kernel, SimDim3 cluster) {
  const Function& f = *kernel.function;
  const char* name = f.image.name.c_str();
  if (f.context->device->cc_major < 9) {
    return fail(CUDA_ERROR_INVALID_CLUSTER_SIZE, "%s: this device has no clusters", name);
  }
  const SimDim3& compiled = f.image.required_cluster;
  if (compiled.x != 0 && (compiled.x != cluster.x || compiled.y != cluster.y || compiled.z != cluster.z)) {
    return fail(CUDA_ERROR_INVALID_CLUSTER_SIZE, "%s was compiled for clusters of %ux%ux%u", name, compiled.x,
                compiled.y, compiled.z);
  }
  bool non_portable = attribute_value(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0;
  std::uint64_t limit = non_portable ? 16 : 8;
  if (cluster.count() > limit || cluster.count() == 0) {
    return fail(CUDA_ERROR_INVALID_CLUSTER_SIZE, "%s: a cluster of %llu blocks, the limit is %llu", name,
                static_cast<unsigned long long>(cluster.count()), static_cast<unsigned long long>(limit));
  }
  if (kernel.grid[0] % cluster.x != 0 || kernel.grid[1] % cluster.y != 0 || kernel.grid[2] % cluster.z != 0) {
    return fail(CUDA_ERROR_INVALID_CLUSTER_SIZE, "%s: the cluster does not divide the grid", name);
  }
  return CUDA_SUCCESS;
}

CUresult check_launch(const KernelWork& kernel) {
  const Function& f = *kernel.function;
  const char* name = f.image.name.c_str();
  if (f.module == nullptr) return fail(CUDA_ERROR_INVALID_HANDLE, "%s: its module is unloaded", name);
  constexpr unsigned grid_limit[3] = {2147483647, 65535, 65535}, block_limit[3] = {1024, 1024, 64};
  for (int i = 0; i < 3; ++i) {
    if (kernel.grid[i] == 0 || kernel.grid[i] > grid_limit[i] || kernel.block[i] == 0 ||
        kernel.block[i] > block_limit[i]) {
      return fail(CUDA_ERROR_INVALID_VALUE, "%s: grid %ux%ux%u, block %ux%ux%u", name, kernel.grid[0], kernel.grid[1],
                  kernel.grid[2], kernel.block[0], kernel.block[1], kernel.block[2]);
    }
  }
  unsigned threads = kernel.block[0] * kernel.block[1] * kernel.block[2];
  if (threads > 1024) return fail(CUDA_ERROR_INVALID_VALUE, "%s: %u threads in a block", name, threads);
  if (threads > f.image.max_threads_per_block) {
    return fail(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "%s: %u threads in a block, it was compiled for %u", name, threads,
                f.image.max_threads_per_block);
  }
  int shared_limit = attribute_value(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (kernel.shared_bytes > static_cast<unsigned>(shared_limit)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%s: %u bytes of dynamic shared memory, its attribute permits %d", name,
                kernel.shared_bytes, shared_limit);
  }
  SimDim3 cluster = cluster_of(kernel);
  if (cluster.count() != 1) SIM_TRY(check_cluster(kernel, cluster));
  if (attribute_of(kernel, CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative != 0) {
    std::uint64_t blocks = std::uint64_t{kernel.grid[0]} * kernel.grid[1] * kernel.grid[2];
    std::uint64_t resident =
        static_cast<std::uint64_t>(f.context->device->sm_count) * (2048 / ((threads + 31) / 32 * 32));
    if (blocks > resident) {
      return fail(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "%s: %llu blocks, %llu fit at once", name,
                  static_cast<unsigned long long>(blocks), static_cast<unsigned long long>(resident));
    }
  }
  return CUDA_SUCCESS;
}

void run_kernel(KernelWork& kernel, Context& context) {
  SimEntry entry;
  SimLaunch launch;
  {
    std::lock_guard lock(driver_mutex());
    const Function& f = *kernel.function;
    entry = f.image.entry;
    launch.cluster = cluster_of(kernel);
    launch.sm_count = static_cast<std::uint32_t>(f.context->device->sm_count);
    launch.cc_major = f.context->device->cc_major;
    launch.cc_minor = f.context->device->cc_minor;
    launch.device = f.context->device->ordinal;
  }
  if (entry == nullptr) {
    break_context(context, CUDA_ERROR_LAUNCH_FAILED, "a kernel ran after its module was unloaded");
    return;
  }
  launch.grid = {kernel.grid[0], kernel.grid[1], kernel.grid[2]};
  launch.block = {kernel.block[0], kernel.block[1], kernel.block[2]};
  launch.dynamic_shared_bytes = kernel.shared_bytes;
  entry(&launch, kernel.arguments.call_arguments());  // memory that is not there faults, as it must
}

namespace {

struct Geometry {
  unsigned grid[3], block[3], shared_bytes;
};

// Attributes that are no part of a node: what they mean happens at the launch.
struct LaunchOnly {
  CUevent programmatic_event = nullptr, completion_event = nullptr;
};

CUresult take_attributes(const CUlaunchConfig& config, KernelWork* kernel, LaunchOnly* only) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& one = config.attrs[i];
    switch (one.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        kernel->programmatic = one.value.programmaticStreamSerializationAllowed != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        only->programmatic_event = one.value.programmaticEvent.event;
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        only->completion_event = one.value.launchCompletionEvent.event;
        break;
      default:
        SIM_TRY(check_node_attribute(one.id, one.value));
        kernel->attributes[one.id] = one.value;
    }
  }
  return CUDA_SUCCESS;
}

// A launch takes from its stream what it does not say itself.
void inherit(const Stream& stream, KernelWork* kernel) {
  if (stream.priority != 0 && kernel->attributes.count(CU_LAUNCH_ATTRIBUTE_PRIORITY) == 0) {
    CUlaunchAttributeValue value = default_attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY);
    value.priority = stream.priority;
    kernel->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY] = value;
  }
  for (const auto& [id, value] : stream.attributes) {
    if (is_node_attribute(id)) kernel->attributes.emplace(id, value);
  }
}

CUresult launch(CUfunction handle, const Geometry& geometry, CUstream stream_handle, void** params, void** extra,
                KernelWork kernel, const LaunchOnly& only) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(stream_handle, &stream));
  SIM_TRY(find_function(handle, stream->context, &kernel.function));
  if (kernel.function->context != stream->context) {
    return fail(CUDA_ERROR_INVALID_HANDLE, "%s belongs to another context than the stream",
                kernel.function->image.name.c_str());
  }
  std::copy_n(geometry.grid, 3, kernel.grid);
  std::copy_n(geometry.block, 3, kernel.block);
  kernel.shared_bytes = geometry.shared_bytes;
  kernel.context = stream->context->handle;
  inherit(*stream, &kernel);
  SIM_TRY(kernel.arguments.take(*kernel.function, params, extra));
  SIM_TRY(check_launch(kernel));
  std::shared_ptr<Event> events[2];
  if (only.programmatic_event != nullptr) SIM_TRY(find_event(only.programmatic_event, &events[0]));
  if (only.completion_event != nullptr) SIM_TRY(find_event(only.completion_event, &events[1]));
  kernel.function->loaded = true;
  SIM_TRY(submit(*stream, std::move(kernel)));
  constexpr unsigned char ports[2] = {CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER};
  for (int i = 0; i < 2; ++i) {
    if (events[i] == nullptr) continue;
    if (stream->capture != nullptr) {
      SIM_TRY(capture_record(*stream, *events[i]));
      for (CaptureEdge& edge : events[i]->captured) {
        edge.data.from_port = ports[i];
        edge.data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      }
    } else {
      events[i]->completion = stream->tail;
      events[i]->capture_id = 0;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API_PTSZ(cuLaunchKernel,
             (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
              unsigned shared, CUstream stream, void** params, void** extra),
             (f, gx, gy, gz, bx, by, bz, shared, stream, params, extra)) {
  return launch(f, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, params, extra, {}, {});
}

SIM_API_PTSZ(cuLaunchKernelEx, (const CUlaunchConfig* config, CUfunction f, void** params, void** extra),
             (config, f, params, extra)) {
  if (config == nullptr || (config->attrs == nullptr && config->numAttrs != 0)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "null configuration");
  }
  KernelWork kernel;
  LaunchOnly only;
  SIM_TRY(take_attributes(*config, &kernel, &only));
  return launch(f,
                {{config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes},
                config->hStream, params, extra, std::move(kernel), only);
}

SIM_API_PTSZ(cuLaunchCooperativeKernel,
             (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
              unsigned shared, CUstream stream, void** params),
             (f, gx, gy, gz, bx, by, bz, shared, stream, params)) {
  KernelWork kernel;
  CUlaunchAttributeValue value = default_attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  value.cooperative = 1;
  kernel.attributes[CU_LAUNCH_ATTRIBUTE_COOPERATIVE] = value;
  return launch(f, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, params, nullptr, std::move(kernel), {});
}

}  // namespace foundry::sim
