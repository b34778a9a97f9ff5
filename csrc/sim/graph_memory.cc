// Graph-owned memory, and the device's counters of it.
#include "csrc/sim/graph_memory.h"

#include <algorithm>

namespace foundry::sim {
namespace {

struct Counters {
  std::size_t used = 0, high = 0;
};
std::map<Device*, Counters>& counters() {
  static auto* table = new std::map<Device*, Counters>;
  return *table;
}

}  // namespace

CUresult reserve_graph_memory(Context& context, AllocWork* work) {
  std::size_t bytes = work->params.bytesize;
  if (bytes == 0) return fail(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
  std::uintptr_t base = reserve_addresses(bytes);
  if (base == 0) return fail(CUDA_ERROR_OUT_OF_MEMORY, "no address space for %zu bytes", bytes);
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = MemoryKind::kGraph;
  range.device = context.device;
  range.context = context.handle;
  add_range(std::move(range));
  work->params.dptr = base;
  return CUDA_SUCCESS;
}

bool graph_memory_mapped(CUdeviceptr address) {
  auto it = ranges().find(address);
  return it != ranges().end() && it->second.charged != 0;
}

bool map_graph_memory(CUdeviceptr address) {
  std::lock_guard lock(driver_mutex());
  auto it = ranges().find(address);
  if (it == ranges().end() || it->second.charged != 0) return false;
  Range& range = it->second;
  if (charge(*range.device, range.bytes, range.bytes) != CUDA_SUCCESS) return false;
  if (!back_addresses(range.base, range.bytes)) {
    refund(*range.device, range.bytes);
    return false;
  }
  range.charged = range.bytes;
  Counters& c = counters()[range.device];
  c.used += range.bytes;
  c.high = std::max(c.high, c.used);
  return true;
}

void unmap_graph_memory(CUdeviceptr address) {
  std::lock_guard lock(driver_mutex());
  auto it = ranges().find(address);
  if (it == ranges().end() || it->second.charged == 0) {
    note("graph memory at 0x%llx was freed without being allocated", address);
    return;
  }
  Range& range = it->second;
  unback_addresses(range.base, range.bytes);
  refund(*range.device, range.charged);
  counters()[range.device].used -= range.bytes;
  range.charged = 0;
}

SIM_API(cuDeviceGraphMemTrim, (CUdevice dev), (dev)) {
  return device_at(dev) != nullptr ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", dev);
}

SIM_API(cuDeviceGetGraphMemAttribute, (CUdevice dev, CUgraphMem_attribute which, void* value), (dev, which, value)) {
  Device* device = device_at(dev);
  if (device == nullptr) return fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", dev);
  if (value == nullptr || which < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT || which > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    return fail(CUDA_ERROR_INVALID_VALUE, "graph memory attribute %d", static_cast<int>(which));
  }
  const Counters& c = counters()[device];
  bool high = which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  *static_cast<cuuint64_t*>(value) = high ? c.high : c.used;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceSetGraphMemAttribute, (CUdevice dev, CUgraphMem_attribute which, void* value), (dev, which, value)) {
  Device* device = device_at(dev);
  if (device == nullptr) return fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", dev);
  bool high = which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  if (value == nullptr || !high || *static_cast<cuuint64_t*>(value) != 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "only the high marks can be set, to 0");
  }
  counters()[device].high = counters()[device].used;
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
