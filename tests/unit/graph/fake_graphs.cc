// The fake driver's graphs.
#include "tests/unit/graph/fake_graphs.h"

#include <algorithm>
#include <cstring>

#include "csrc/graph/node_attributes.h"

namespace foundry::graph::testing {
namespace {

CUresult CUDAAPI graph_create(CUgraph* graph, unsigned) {
  ENTER(cuGraphCreate, true);
  ++FakeDriver::now().live_graphs;
  *graph = reinterpret_cast<CUgraph>(new FakeGraph);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI graph_destroy(CUgraph graph) {
  --FakeDriver::now().live_graphs;
  delete as<FakeGraph>(graph);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI graph_nodes(CUgraph graph, CUgraphNode* out, size_t* count) {
  auto& nodes = as<FakeGraph>(graph)->nodes;
  if (out != nullptr) {
    *count = std::min(*count, nodes.size());
    for (size_t i = 0; i < *count; ++i) out[i] = reinterpret_cast<CUgraphNode>(nodes[i].get());
  } else {
    *count = nodes.size();
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI graph_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  const FakeGraph& g = *as<FakeGraph>(graph);
  if (from == nullptr) {
    *count = g.edges.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < g.edges.size(); ++i) {
    if (data == nullptr && g.edges[i].data.from_port != 0) return CUDA_ERROR_LOSSY_QUERY;
    from[i] = reinterpret_cast<CUgraphNode>(g.nodes[g.edges[i].from].get());
    to[i] = reinterpret_cast<CUgraphNode>(g.nodes[g.edges[i].to].get());
    if (data != nullptr) data[i] = g.edges[i].data;
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI node_type(CUgraphNode node, CUgraphNodeType* type) {
  *type = static_cast<CUgraphNodeType>(as<FakeNode>(node)->type);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_node_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  ENTER(cuGraphKernelNodeGetParams, true);
  FakeNode& n = *as<FakeNode>(node);
  *out = n.launch;
  out->func = nullptr;
  out->kern = nullptr;
  if (n.shown == Shown::both || n.shown == Shown::function)
    out->func = reinterpret_cast<CUfunction>(&n.kernel->function);
  if (n.shown == Shown::both || n.shown == Shown::kernel) out->kern = reinterpret_cast<CUkernel>(n.kernel);
  if (n.shown == Shown::disguised_kernel) out->func = reinterpret_cast<CUfunction>(n.kernel);
  if (!n.extra_buffer.empty()) {
    n.extra_bytes = n.extra_buffer.size();
    n.pointers = {CU_LAUNCH_PARAM_BUFFER_SIZE, &n.extra_bytes, CU_LAUNCH_PARAM_BUFFER_POINTER, n.extra_buffer.data(),
                  CU_LAUNCH_PARAM_END};
    out->extra = n.pointers.data();
    out->kernelParams = nullptr;
  } else {
    n.pointers.clear();
    for (auto& argument : n.arguments) n.pointers.push_back(argument.data());
    out->kernelParams = n.pointers.data();
    out->extra = nullptr;
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI node_get_attribute(CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue* value) {
  const auto& failures = FakeDriver::now().attribute_failures;
  if (const auto failure = failures.find(id); failure != failures.end()) return failure->second;
  const auto& set = as<FakeNode>(node)->attributes;
  const auto found = set.find(id);
  const LaunchAttributeInfo* info = launch_attribute_info(id);
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Like the driver: only the value's own bytes are written, the rest is what was there.
  const auto& initial = FakeDriver::now().new_node_attributes;
  const auto given = initial.find(id);
  std::memcpy(value,
              found != set.end()       ? &found->second
              : given != initial.end() ? &given->second
                                       : &info->initial,
              info->bytes);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI node_set_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue* value) {
  ENTER(cuGraphKernelNodeSetAttribute, true);
  as<FakeNode>(node)->attributes[id] = *value;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI memcpy_params(CUgraphNode node, CUDA_MEMCPY3D* out) {
  *out = as<FakeNode>(node)->copy;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI memset_params(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  *out = as<FakeNode>(node)->set;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI node_event(CUgraphNode node, CUevent* out) {
  *out = as<FakeNode>(node)->event;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI child_graph(CUgraphNode node, CUgraph* out) {
  *out = reinterpret_cast<CUgraph>(as<FakeNode>(node)->child.get());
  return CUDA_SUCCESS;
}
FakeNode* append(CUgraph graph, CUgraphNode* out, int type) {
  auto& nodes = as<FakeGraph>(graph)->nodes;
  nodes.push_back(std::make_unique<FakeNode>());
  nodes.back()->type = type;
  if (out != nullptr) *out = reinterpret_cast<CUgraphNode>(nodes.back().get());
  return nodes.back().get();
}
CUresult CUDAAPI add_kernel_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t,
                                 const CUDA_KERNEL_NODE_PARAMS* params) {
  ENTER(cuGraphAddKernelNode, true);
  // Like the driver: `kern` counts only without `func`.
  if (params->func != nullptr ? !has_tag(params->func, Tag::function) : !has_tag(params->kern, Tag::kernel)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  FakeKernel* kernel = params->func != nullptr ? as<FakeFunction>(params->func)->kernel : as<FakeKernel>(params->kern);
  const int most = attribute_of(*kernel, kernel->function.attributes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (static_cast<int>(params->sharedMemBytes) > most) return CUDA_ERROR_INVALID_VALUE;
  FakeNode* node = append(graph, out, CU_GRAPH_NODE_TYPE_KERNEL);
  node->kernel = kernel;
  node->launch = *params;
  if (params->extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (void** item = params->extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
      if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = item[1];
      if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<size_t*>(item[1]);
    }
    node->extra_buffer.assign(static_cast<const uint8_t*>(buffer), static_cast<const uint8_t*>(buffer) + bytes);
  } else {
    for (size_t i = 0; i < kernel->spec.params.size(); ++i) {
      const auto* first = static_cast<const uint8_t*>(params->kernelParams[i]);
      node->arguments.emplace_back(first, first + kernel->spec.params[i].bytes);
    }
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_memcpy_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t,
                                 const CUDA_MEMCPY3D* params, CUcontext context) {
  ENTER(cuGraphAddMemcpyNode, true);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  append(graph, out, CU_GRAPH_NODE_TYPE_MEMCPY)->copy = *params;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_memset_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t,
                                 const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context) {
  ENTER(cuGraphAddMemsetNode, true);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  append(graph, out, CU_GRAPH_NODE_TYPE_MEMSET)->set = *params;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_empty_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t) {
  ENTER(cuGraphAddEmptyNode, true);
  append(graph, out, CU_GRAPH_NODE_TYPE_EMPTY);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_record_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t, CUevent event) {
  ENTER(cuGraphAddEventRecordNode, true);
  append(graph, out, CU_GRAPH_NODE_TYPE_EVENT_RECORD)->event = event;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_wait_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t, CUevent event) {
  ENTER(cuGraphAddEventWaitNode, true);
  append(graph, out, CU_GRAPH_NODE_TYPE_WAIT_EVENT)->event = event;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_child_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t, CUgraph child) {
  ENTER(cuGraphAddChildGraphNode, true);
  append(graph, out, CU_GRAPH_NODE_TYPE_GRAPH)->child = as<FakeGraph>(child)->clone();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_dependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                  const CUgraphEdgeData* data, size_t count) {
  ENTER(cuGraphAddDependencies, true);
  FakeGraph& g = *as<FakeGraph>(graph);
  for (size_t i = 0; i < count; ++i) {
    CUgraphEdgeData one{};
    if (data != nullptr) one = FakeDriver::now().bulk_edges_share_data ? data[0] : data[i];
    g.edges.push_back({g.index_of(as<FakeNode>(from[i])), g.index_of(as<FakeNode>(to[i])), one});
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags, true);
  auto exec = std::make_unique<FakeExec>();
  exec->graph = as<FakeGraph>(graph)->clone();
  exec->flags = flags;
  const auto& nodes = exec->graph->nodes;
  if (!nodes.empty() && !nodes[0]->arguments.empty() && nodes[0]->arguments[0].size() == 8) {
    uint64_t word = 0;  // tells graphs apart in the log
    std::memcpy(&word, nodes[0]->arguments[0].data(), sizeof word);
    FakeDriver::now().note("exec " + std::to_string(word));
  }
  ++FakeDriver::now().live_execs;
  *out = reinterpret_cast<CUgraphExec>(exec.release());
  return CUDA_SUCCESS;
}
CUresult CUDAAPI launch(CUgraphExec exec, CUstream) {
  ENTER(cuGraphLaunch, true);
  ++as<FakeExec>(exec)->launches;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI exec_destroy(CUgraphExec exec) {
  FakeDriver::now().note("destroy exec");
  --FakeDriver::now().live_execs;
  delete as<FakeExec>(exec);
  return CUDA_SUCCESS;
}

}  // namespace

std::unique_ptr<FakeGraph> FakeGraph::clone() const {
  auto copy = std::make_unique<FakeGraph>();
  copy->edges = edges;
  for (const auto& node : nodes) {
    copy->nodes.push_back(std::make_unique<FakeNode>());
    FakeNode& to = *copy->nodes.back();
    to.type = node->type;
    to.kernel = node->kernel;
    to.shown = node->shown;
    to.launch = node->launch;
    to.arguments = node->arguments;
    to.extra_buffer = node->extra_buffer;
    to.attributes = node->attributes;
    to.copy = node->copy;
    to.set = node->set;
    to.event = node->event;
    if (node->child) to.child = node->child->clone();
  }
  return copy;
}

size_t FakeGraph::index_of(const FakeNode* node) const {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].get() == node) return i;
  }
  return SIZE_MAX;
}

void bind_graphs(driver::Driver& t) {
  t.cuGraphCreate = graph_create;
  t.cuGraphDestroy = graph_destroy;
  t.cuGraphGetNodes = graph_nodes;
  t.cuGraphGetEdges = graph_edges;
  t.cuGraphNodeGetType = node_type;
  t.cuGraphKernelNodeGetParams = kernel_node_params;
  t.cuGraphKernelNodeGetAttribute = node_get_attribute;
  t.cuGraphKernelNodeSetAttribute = node_set_attribute;
  t.cuGraphMemcpyNodeGetParams = memcpy_params;
  t.cuGraphMemsetNodeGetParams = memset_params;
  t.cuGraphEventRecordNodeGetEvent = node_event;
  t.cuGraphEventWaitNodeGetEvent = node_event;
  t.cuGraphChildGraphNodeGetGraph = child_graph;
  t.cuGraphAddKernelNode = add_kernel_node;
  t.cuGraphAddMemcpyNode = add_memcpy_node;
  t.cuGraphAddMemsetNode = add_memset_node;
  t.cuGraphAddEmptyNode = add_empty_node;
  t.cuGraphAddEventRecordNode = add_record_node;
  t.cuGraphAddEventWaitNode = add_wait_node;
  t.cuGraphAddChildGraphNode = add_child_node;
  t.cuGraphAddDependencies = add_dependencies;
  t.cuGraphInstantiateWithFlags = instantiate;
  t.cuGraphLaunch = launch;
  t.cuGraphExecDestroy = exec_destroy;
}

CUgraph FakeDriver::graph() {
  CUgraph graph = nullptr;
  graph_create(&graph, 0);
  return graph;
}

FakeNode* FakeDriver::add_kernel(CUgraph graph, CUkernel kernel, std::vector<std::vector<uint8_t>> arguments,
                                 Shown shown) {
  FakeNode* node = append(graph, nullptr, CU_GRAPH_NODE_TYPE_KERNEL);
  node->kernel = as<FakeKernel>(kernel);
  node->arguments = std::move(arguments);
  node->shown = shown;
  node->launch.gridDimX = node->launch.gridDimY = node->launch.gridDimZ = 1;
  node->launch.blockDimX = 32;
  node->launch.blockDimY = node->launch.blockDimZ = 1;
  return node;
}

FakeNode* FakeDriver::add_node(CUgraph graph, int type) { return append(graph, nullptr, type); }

void FakeDriver::add_edge(CUgraph graph, FakeNode* from, FakeNode* to, uint8_t from_port, uint8_t type) {
  FakeGraph& g = of(graph);
  CUgraphEdgeData data{};
  data.from_port = from_port;
  data.type = type;
  g.edges.push_back({g.index_of(from), g.index_of(to), data});
}

}  // namespace foundry::graph::testing
