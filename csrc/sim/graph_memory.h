// Memory that graphs own: an address for life, bytes between a launch's alloc node and its free node.
#pragma once

#include "csrc/sim/memory.h"
#include "csrc/sim/work.h"

namespace foundry::sim {

CUresult reserve_graph_memory(Context& context, AllocWork* work);  // sets params.dptr
// For workers, without the driver's lock.
bool map_graph_memory(CUdeviceptr address);  // false when it is mapped already or the device is full
void unmap_graph_memory(CUdeviceptr address);
bool graph_memory_mapped(CUdeviceptr address);  // under the lock

}  // namespace foundry::sim
