// Nodes: adding them, and reading and setting what they do.
#include <algorithm>
#include <cstring>

#include "csrc/sim/event.h"
#include "csrc/sim/launch.h"
#include "csrc/sim/library.h"
#include "csrc/sim/node_params.h"

namespace foundry::sim {
namespace {

struct Place {
  CUgraphNode* out;
  CUgraph graph;
  const CUgraphNode* dependencies;
  std::size_t count;
  const CUgraphEdgeData* data = nullptr;
};

// Reads with `read(Work*)` and adds.
template <class Read>
CUresult add(const Place& place, Read read) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(place.graph, &graph));
  if (place.out == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null result");
  std::vector<Edge> dependencies;
  SIM_TRY(read_dependencies(*graph, place.dependencies, place.data, place.count, &dependencies));
  Work work;
  SIM_TRY(read(&work));
  Node* node;
  CUgraphNodeType type = node_type(work);
  SIM_TRY(add_node(*graph, type, std::move(work), dependencies, &node));
  *place.out = node->handle;
  return CUDA_SUCCESS;
}

template <class T>
CUresult node_of(CUgraphNode handle, CUgraphNodeType type, std::shared_ptr<Node>* node, T** work) {
  SIM_TRY(find_node(handle, node));
  *work = std::get_if<T>(&(*node)->work);
  if ((*node)->type == type && *work != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_VALUE, "the node is of type %d, not %d", static_cast<int>((*node)->type),
              static_cast<int>(type));
}

CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  CUDA_KERNEL_NODE_PARAMS wide = {};
  std::memcpy(&wide, &p, sizeof p);  // the first version is the head of the second
  return wide;
}

CUresult add_kernel(const Place& place, const CUDA_KERNEL_NODE_PARAMS* params) {
  if (params == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null parameters");
  return add(place, [&](Work* work) { return read_kernel(*params, &work->emplace<KernelWork>()); });
}

CUresult get_kernel(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* params) {
  std::shared_ptr<Node> node;
  KernelWork* kernel;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node, &kernel));
  show_kernel(*kernel, params);
  return CUDA_SUCCESS;
}

CUresult set_kernel(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS& params) {
  std::shared_ptr<Node> node;
  KernelWork* kernel;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node, &kernel));
  KernelWork fresh;
  SIM_TRY(read_kernel(params, &fresh));
  return replace_work(&node->work, std::move(fresh));
}

}  // namespace

SIM_API(cuGraphAddKernelNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count,
         const CUDA_KERNEL_NODE_PARAMS_v1* params),
        (out, graph, deps, count, params)) {
  if (params == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null parameters");
  CUDA_KERNEL_NODE_PARAMS wide = widen(*params);
  return add_kernel({out, graph, deps, count}, &wide);
}
SIM_API(cuGraphAddKernelNode_v2,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count,
         const CUDA_KERNEL_NODE_PARAMS* params),
        (out, graph, deps, count, params)) {
  return add_kernel({out, graph, deps, count}, params);
}
SIM_API(cuGraphKernelNodeGetParams, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params), (node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide;
  SIM_TRY(get_kernel(node, &wide));
  std::memcpy(params, &wide, sizeof *params);
  return CUDA_SUCCESS;
}
SIM_API(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params), (node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return get_kernel(node, params);
}
SIM_API(cuGraphKernelNodeSetParams, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params), (node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel(node, widen(*params));
}
SIM_API(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params), (node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel(node, *params);
}

SIM_API(cuGraphKernelNodeGetAttribute, (CUgraphNode handle, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value),
        (handle, id, value)) {
  std::shared_ptr<Node> node;
  KernelWork* kernel;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node, &kernel));
  if (value == nullptr || !is_node_attribute(id)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "a kernel node has no attribute %d", static_cast<int>(id));
  }
  *value = attribute_of(*kernel, id);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphKernelNodeSetAttribute, (CUgraphNode handle, CUkernelNodeAttrID id, const CUkernelNodeAttrValue* value),
        (handle, id, value)) {
  std::shared_ptr<Node> node;
  KernelWork* kernel;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node, &kernel));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(check_node_attribute(id, *value));
  KernelWork changed = *kernel;
  changed.attributes[id] = *value;
  SIM_TRY(check_launch(changed));
  kernel->attributes[id] = *value;  // the arguments stay where they are: a client may hold pointers to them
  return CUDA_SUCCESS;
}

SIM_API(cuGraphKernelNodeCopyAttributes, (CUgraphNode to, CUgraphNode from), (to, from)) {
  std::shared_ptr<Node> target_node, source_node;
  KernelWork *target, *source;
  SIM_TRY(node_of(to, CU_GRAPH_NODE_TYPE_KERNEL, &target_node, &target));
  SIM_TRY(node_of(from, CU_GRAPH_NODE_TYPE_KERNEL, &source_node, &source));
  target->attributes = source->attributes;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddMemcpyNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count, const CUDA_MEMCPY3D* params,
         CUcontext context),
        (out, graph, deps, count, params, context)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({out, graph, deps, count},
             [&](Work* work) { return read_copy(*params, context, &work->emplace<CopyWork>()); });
}
SIM_API(cuGraphMemcpyNodeGetParams, (CUgraphNode handle, CUDA_MEMCPY3D* params), (handle, params)) {
  std::shared_ptr<Node> node;
  CopyWork* copy;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_MEMCPY, &node, &copy));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *params = copy->params;
  return CUDA_SUCCESS;
}
SIM_API(cuGraphMemcpyNodeSetParams, (CUgraphNode handle, const CUDA_MEMCPY3D* params), (handle, params)) {
  std::shared_ptr<Node> node;
  CopyWork* copy;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_MEMCPY, &node, &copy));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_copy(*params, copy->context, copy);
}

SIM_API(cuGraphAddMemsetNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count, const CUDA_MEMSET_NODE_PARAMS* params,
         CUcontext context),
        (out, graph, deps, count, params, context)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({out, graph, deps, count},
             [&](Work* work) { return read_set(*params, context, &work->emplace<SetWork>()); });
}
SIM_API(cuGraphMemsetNodeGetParams, (CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* params), (handle, params)) {
  std::shared_ptr<Node> node;
  SetWork* set;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_MEMSET, &node, &set));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *params = set->params;
  return CUDA_SUCCESS;
}
SIM_API(cuGraphMemsetNodeSetParams, (CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS* params), (handle, params)) {
  std::shared_ptr<Node> node;
  SetWork* set;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_MEMSET, &node, &set));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_set(*params, set->context, set);
}

SIM_API(cuGraphAddHostNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count, const CUDA_HOST_NODE_PARAMS* params),
        (out, graph, deps, count, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({out, graph, deps, count}, [&](Work* work) { return read_host(*params, &work->emplace<HostWork>()); });
}
SIM_API(cuGraphHostNodeGetParams, (CUgraphNode handle, CUDA_HOST_NODE_PARAMS* params), (handle, params)) {
  std::shared_ptr<Node> node;
  HostWork* host;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_HOST, &node, &host));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *params = {host->function, host->data};
  return CUDA_SUCCESS;
}
SIM_API(cuGraphHostNodeSetParams, (CUgraphNode handle, const CUDA_HOST_NODE_PARAMS* params), (handle, params)) {
  std::shared_ptr<Node> node;
  HostWork* host;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_HOST, &node, &host));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_host(*params, host);
}

SIM_API(cuGraphAddEmptyNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count),
        (out, graph, deps, count)) {
  return add({out, graph, deps, count}, [](Work*) { return CUDA_SUCCESS; });
}

SIM_API(cuGraphAddChildGraphNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count, CUgraph child),
        (out, graph, deps, count, child)) {
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = child;
  return add({out, graph, deps, count}, [&](Work* work) { return read_any(params, work, nullptr); });
}
SIM_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode handle, CUgraph* out), (handle, out)) {
  std::shared_ptr<Node> node;
  ChildWork* child;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_GRAPH, &node, &child));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = child->graph->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddEventRecordNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count, CUevent event),
        (out, graph, deps, count, event)) {
  return add({out, graph, deps, count},
             [&](Work* work) { return read_event(event, &work->emplace<EventRecordWork>().event); });
}
SIM_API(cuGraphAddEventWaitNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count, CUevent event),
        (out, graph, deps, count, event)) {
  return add({out, graph, deps, count},
             [&](Work* work) { return read_event(event, &work->emplace<EventWaitWork>().event); });
}

template <class T>
static CUresult get_event(CUgraphNode handle, CUgraphNodeType type, CUevent* event) {
  std::shared_ptr<Node> node;
  T* work;
  SIM_TRY(node_of(handle, type, &node, &work));
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *event = work->event->handle;
  return CUDA_SUCCESS;
}
template <class T>
static CUresult set_event(CUgraphNode handle, CUgraphNodeType type, CUevent event) {
  std::shared_ptr<Node> node;
  T* work;
  SIM_TRY(node_of(handle, type, &node, &work));
  return read_event(event, &work->event);
}
SIM_API(cuGraphEventRecordNodeGetEvent, (CUgraphNode node, CUevent* event), (node, event)) {
  return get_event<EventRecordWork>(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}
SIM_API(cuGraphEventRecordNodeSetEvent, (CUgraphNode node, CUevent event), (node, event)) {
  return set_event<EventRecordWork>(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}
SIM_API(cuGraphEventWaitNodeGetEvent, (CUgraphNode node, CUevent* event), (node, event)) {
  return get_event<EventWaitWork>(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}
SIM_API(cuGraphEventWaitNodeSetEvent, (CUgraphNode node, CUevent event), (node, event)) {
  return set_event<EventWaitWork>(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SIM_API(cuGraphAddMemAllocNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params),
        (out, graph, deps, count, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams any = {};
  any.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  std::memcpy(&any.alloc, params, sizeof *params);
  SIM_TRY(add({out, graph, deps, count}, [&](Work* work) { return read_any(any, work, nullptr); }));
  params->dptr = any.alloc.dptr;
  return CUDA_SUCCESS;
}
SIM_API(cuGraphMemAllocNodeGetParams, (CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* params), (handle, params)) {
  std::shared_ptr<Node> node;
  AllocWork* alloc;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &node, &alloc));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *params = alloc->params;
  params->accessDescs = alloc->access.data();
  params->accessDescCount = alloc->access.size();
  return CUDA_SUCCESS;
}
SIM_API(cuGraphAddMemFreeNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count, CUdeviceptr address),
        (out, graph, deps, count, address)) {
  CUgraphNodeParams any = {};
  any.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  any.free.dptr = address;
  return add({out, graph, deps, count}, [&](Work* work) { return read_any(any, work, nullptr); });
}
SIM_API(cuGraphMemFreeNodeGetParams, (CUgraphNode handle, CUdeviceptr* address), (handle, address)) {
  std::shared_ptr<Node> node;
  FreeWork* free_work;
  SIM_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, &node, &free_work));
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *address = free_work->address;
  return CUDA_SUCCESS;
}

// Adds a node of any type; a conditional one gets its bodies, which the parameters then show.
static CUresult add_any(const Place& place, CUgraphNodeParams* params) {
  if (params == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null parameters");
  std::vector<std::shared_ptr<Graph>> bodies;
  CUresult added = add(place, [&](Work* work) { return read_any(*params, work, &bodies); });
  if (added != CUDA_SUCCESS) {
    for (const auto& body : bodies) graphs().remove(body->handle);
    return added;
  }
  if (params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return CUDA_SUCCESS;
  Node* node = nodes().get(*place.out);
  node->bodies = std::move(bodies);
  for (const auto& body : node->bodies) {
    body->owner = node;
    node->body_handles.push_back(body->handle);
  }
  params->conditional.phGraph_out = node->body_handles.data();
  std::get<OpaqueWork>(node->work).params.conditional.phGraph_out = node->body_handles.data();
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count, CUgraphNodeParams* params),
        (out, graph, deps, count, params)) {
  return add_any({out, graph, deps, count}, params);
}
SIM_API(cuGraphAddNode_v2,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, const CUgraphEdgeData* data, size_t count,
         CUgraphNodeParams* params),
        (out, graph, deps, data, count, params)) {
  return add_any({out, graph, deps, count, data}, params);
}

SIM_API(cuGraphNodeSetParams, (CUgraphNode handle, CUgraphNodeParams* params), (handle, params)) {
  std::shared_ptr<Node> node;
  SIM_TRY(find_node(handle, &node));
  if (params == nullptr || params->type != node->type) return fail(CUDA_ERROR_INVALID_VALUE, "another node type");
  if (node->type == CU_GRAPH_NODE_TYPE_GRAPH || node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
      node->type == CU_GRAPH_NODE_TYPE_MEM_FREE || node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    return fail(CUDA_ERROR_NOT_SUPPORTED, "nodes of type %d cannot be changed", static_cast<int>(node->type));
  }
  Work work;
  SIM_TRY(read_any(*params, &work, nullptr));
  return replace_work(&node->work, std::move(work));
}

}  // namespace foundry::sim
