// Between the parameter structures of the API and Work. Each reads deeply and checks as adding a node does.
#pragma once

#include "csrc/sim/graph.h"

namespace foundry::sim {

CUresult read_kernel(const CUDA_KERNEL_NODE_PARAMS& params, KernelWork* kernel);
CUresult read_copy(const CUDA_MEMCPY3D& params, CUcontext context, CopyWork* copy);
CUresult read_set(const CUDA_MEMSET_NODE_PARAMS& params, CUcontext context, SetWork* set);
CUresult read_host(const CUDA_HOST_NODE_PARAMS& params, HostWork* host);
CUresult read_event(CUevent handle, std::shared_ptr<Event>* event);

// What a node of any type shows; pointers lead into the node.
void show_kernel(KernelWork& kernel, CUDA_KERNEL_NODE_PARAMS* params);

// The work for cuGraphAddNode and the generic setters; `bodies`, of a conditional node, is null where a node exists.
CUresult read_any(CUgraphNodeParams& params, Work* work, std::vector<std::shared_ptr<Graph>>* bodies);

CUresult read_dependencies(const Graph& graph, const CUgraphNode* list, const CUgraphEdgeData* data, std::size_t count,
                           std::vector<Edge>* out);

// Leads the pointers in work.params into its own arrays, after a copy.
void repoint(OpaqueWork& work);

// Puts new work into an existing node or executable node, keeping what the parameters do not say (attributes).
CUresult replace_work(Work* old_work, Work new_work);

}  // namespace foundry::sim
