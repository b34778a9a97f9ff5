// Graphs: creation, structure, queries, clones.
#include "csrc/sim/graph.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "csrc/sim/context.h"
#include "csrc/sim/event.h"
#include "csrc/sim/library.h"
#include "csrc/sim/user_object.h"

namespace foundry::sim {

HandleTable<Graph, CUgraph, Kind::kGraph>& graphs() {
  static auto* table = new HandleTable<Graph, CUgraph, Kind::kGraph>;
  return *table;
}
HandleTable<Node, CUgraphNode, Kind::kNode>& nodes() {
  static auto* table = new HandleTable<Node, CUgraphNode, Kind::kNode>;
  return *table;
}

CUresult find_graph(CUgraph handle, std::shared_ptr<Graph>* graph) {
  *graph = graphs().find(handle);
  if (*graph != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_VALUE, "graph %p was %s", static_cast<void*>(handle), graphs().why_not(handle));
}

CUresult find_node(CUgraphNode handle, std::shared_ptr<Node>* node) {
  *node = nodes().find(handle);
  if (*node != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_VALUE, "node %p was %s", static_cast<void*>(handle), nodes().why_not(handle));
}

std::shared_ptr<Graph> make_graph() {
  auto graph = std::make_shared<Graph>();
  graph->handle = graphs().add(graph);
  return graph;
}

// Graphs inside a node: of a child graph node, or the bodies of a conditional one.
static void drop_children(Node& node) {
  if (auto* child = std::get_if<ChildWork>(&node.work)) {
    drop_graph(*child->graph);
    graphs().remove(child->graph->handle);
  }
  for (const auto& body : node.bodies) {
    drop_graph(*body);
    graphs().remove(body->handle);
  }
}

void drop_graph(Graph& graph) {
  for (const auto& node : graph.nodes) {
    drop_children(*node);
    nodes().remove(node->handle);
  }
  graph.nodes.clear();
  graph.user_objects.clear();
}

CUresult check_edge(const Node& from, const Node& to, const CUgraphEdgeData& data) {
  if (from.graph != to.graph || &from == &to)
    return fail(CUDA_ERROR_INVALID_VALUE, "an edge to itself or to another graph");
  for (unsigned char reserved : data.reserved) {
    if (reserved != 0) return fail(CUDA_ERROR_INVALID_VALUE, "reserved bytes of an edge are not zero");
  }
  bool plain = data.from_port == 0 && data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
  bool programmatic =
      data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC ||
                                                             data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
  if (data.to_port != 0 || (!plain && !programmatic)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "edge data: ports %u and %u, type %u", data.from_port, data.to_port,
                data.type);
  }
  if (programmatic && (from.type != CU_GRAPH_NODE_TYPE_KERNEL || to.type != CU_GRAPH_NODE_TYPE_KERNEL)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "a programmatic edge needs a kernel at both ends");
  }
  return CUDA_SUCCESS;
}

CUresult add_edge(Node& from, Node& to, const CUgraphEdgeData& data) {
  SIM_TRY(check_edge(from, to, data));
  for (const Edge& edge : to.dependencies) {
    if (edge.other == &from) return fail(CUDA_ERROR_INVALID_VALUE, "the edge is there already");
  }
  to.dependencies.push_back({&from, data});
  from.dependents.push_back({&to, data});
  return CUDA_SUCCESS;
}

CUresult add_node(Graph& graph, CUgraphNodeType type, Work work, const std::vector<Edge>& dependencies, Node** out) {
  auto node = std::make_shared<Node>();
  node->graph = &graph;
  node->type = type;
  node->work = std::move(work);
  for (const Edge& edge : dependencies) {
    CUresult checked = check_edge(*edge.other, *node, edge.data);
    bool twice = std::count_if(dependencies.begin(), dependencies.end(),
                               [&](const Edge& other) { return other.other == edge.other; }) > 1;
    if (twice) return fail(CUDA_ERROR_INVALID_VALUE, "a dependency is given twice");
    if (checked != CUDA_SUCCESS) return checked;
  }
  for (const Edge& edge : dependencies) {
    node->dependencies.push_back(edge);
    edge.other->dependents.push_back({node.get(), edge.data});
  }
  if (auto* child = std::get_if<ChildWork>(&node->work)) child->graph->owner = node.get();
  node->handle = nodes().add(node);
  graph.nodes.push_back(node);
  *out = node.get();
  return CUDA_SUCCESS;
}

std::shared_ptr<Graph> clone_graph(const Graph& graph) {
  auto copy = make_graph();
  copy->cloned_from = graph.handle;
  copy->user_objects = graph.user_objects;
  std::unordered_map<const Node*, Node*> twin;
  for (const auto& node : graph.nodes) {
    auto made = std::make_shared<Node>();
    made->graph = copy.get();
    made->type = node->type;
    made->cloned_from = node->handle;
    made->work = node->work;
    if (auto* child = std::get_if<ChildWork>(&made->work)) {
      child->graph = clone_graph(*child->graph);
      child->graph->owner = made.get();
    }
    made->handle = nodes().add(made);
    copy->nodes.push_back(made);
    twin[node.get()] = made.get();
  }
  for (const auto& node : graph.nodes) {
    for (const Edge& edge : node->dependencies) twin[node.get()]->dependencies.push_back({twin[edge.other], edge.data});
    for (const Edge& edge : node->dependents) twin[node.get()]->dependents.push_back({twin[edge.other], edge.data});
  }
  return copy;
}

static void remove_node(Node& node) {
  auto unlink = [&node](std::vector<Edge>& edges) {
    std::erase_if(edges, [&](const Edge& edge) { return edge.other == &node; });
  };
  for (const Edge& edge : node.dependencies) unlink(edge.other->dependents);
  for (const Edge& edge : node.dependents) unlink(edge.other->dependencies);
  drop_children(node);
  Graph& graph = *node.graph;
  nodes().remove(node.handle);
  std::erase_if(graph.nodes, [&](const std::shared_ptr<Node>& one) { return one.get() == &node; });
}

// The count-then-fill protocol of every list query: what does not exist is filled with null.
static CUresult give_nodes(const std::vector<CUgraphNode>& list, CUgraphNode* out, std::size_t* count) {
  if (count == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null count");
  if (out == nullptr) {
    *count = list.size();
    return CUDA_SUCCESS;
  }
  for (std::size_t i = 0; i < *count; ++i) out[i] = i < list.size() ? list[i] : nullptr;
  *count = std::min(*count, list.size());
  return CUDA_SUCCESS;
}

SIM_API(cuGraphCreate, (CUgraph * out, unsigned flags), (out, flags)) {
  if (out == nullptr || flags != 0) return fail(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
  *out = make_graph()->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphDestroy, (CUgraph handle), (handle)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  if (graph->owner != nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "the graph belongs to a node");
  if (graph->being_captured) return fail(CUDA_ERROR_INVALID_VALUE, "the graph is still being captured");
  drop_graph(*graph);
  graphs().remove(handle);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphClone, (CUgraph * out, CUgraph handle), (out, handle)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph->nodes) {
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL || node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      return fail(CUDA_ERROR_NOT_SUPPORTED, "a graph with conditional or memory nodes cannot be cloned");
    }
  }
  *out = clone_graph(*graph)->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphNodeFindInClone, (CUgraphNode * out, CUgraphNode original, CUgraph handle), (out, original, handle)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph->nodes) {
    if (node->cloned_from != original) continue;
    *out = node->handle;
    return CUDA_SUCCESS;
  }
  return fail(CUDA_ERROR_INVALID_VALUE, "the graph is no clone with that node");
}

SIM_API(cuGraphNodeGetType, (CUgraphNode handle, CUgraphNodeType* type), (handle, type)) {
  std::shared_ptr<Node> node;
  SIM_TRY(find_node(handle, &node));
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphGetNodes, (CUgraph handle, CUgraphNode* out, size_t* count), (handle, out, count)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  std::vector<CUgraphNode> list;
  for (const auto& node : graph->nodes) list.push_back(node->handle);
  return give_nodes(list, out, count);
}

SIM_API(cuGraphGetRootNodes, (CUgraph handle, CUgraphNode* out, size_t* count), (handle, out, count)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  std::vector<CUgraphNode> list;
  for (const auto& node : graph->nodes) {
    if (node->dependencies.empty()) list.push_back(node->handle);
  }
  return give_nodes(list, out, count);
}

static bool has_data(const Edge& edge) {
  return edge.data.from_port != 0 || edge.data.to_port != 0 || edge.data.type != 0;
}

static CUresult get_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                          std::size_t* count) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  std::size_t total = 0;
  for (const auto& node : graph->nodes) total += node->dependents.size();
  if (from == nullptr) {
    *count = total;
    return CUDA_SUCCESS;
  }
  std::size_t at = 0;
  for (const auto& node : graph->nodes) {
    for (const Edge& edge : node->dependents) {
      if (at == *count) break;
      if (data == nullptr && has_data(edge))
        return fail(CUDA_ERROR_LOSSY_QUERY, "an edge has data, no array is given for it");
      from[at] = node->handle;
      to[at] = edge.other->handle;
      if (data != nullptr) data[at] = edge.data;
      ++at;
    }
  }
  for (std::size_t i = at; i < *count; ++i) from[i] = to[i] = nullptr;
  *count = at;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphGetEdges, (CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count), (graph, from, to, count)) {
  return get_edges(graph, from, to, nullptr, count);
}
SIM_API(cuGraphGetEdges_v2, (CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count),
        (graph, from, to, data, count)) {
  return get_edges(graph, from, to, data, count);
}

static CUresult neighbours(CUgraphNode handle, bool dependents, CUgraphNode* out, CUgraphEdgeData* data,
                           std::size_t* count) {
  std::shared_ptr<Node> node;
  SIM_TRY(find_node(handle, &node));
  const std::vector<Edge>& edges = dependents ? node->dependents : node->dependencies;
  std::vector<CUgraphNode> list;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (out != nullptr && count != nullptr && i < *count) {
      if (data == nullptr && has_data(edges[i])) return fail(CUDA_ERROR_LOSSY_QUERY, "an edge has data");
      if (data != nullptr) data[i] = edges[i].data;
    }
    list.push_back(edges[i].other->handle);
  }
  return give_nodes(list, out, count);
}

SIM_API(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode* out, size_t* count), (node, out, count)) {
  return neighbours(node, false, out, nullptr, count);
}
SIM_API(cuGraphNodeGetDependencies_v2, (CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, size_t* count),
        (node, out, data, count)) {
  return neighbours(node, false, out, data, count);
}
SIM_API(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode* out, size_t* count), (node, out, count)) {
  return neighbours(node, true, out, nullptr, count);
}
SIM_API(cuGraphNodeGetDependentNodes_v2, (CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, size_t* count),
        (node, out, data, count)) {
  return neighbours(node, true, out, data, count);
}

static CUresult change_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                             const CUgraphEdgeData* data, std::size_t count, bool add) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  if (count == 0) return CUDA_SUCCESS;
  if (from == nullptr || to == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  for (std::size_t i = 0; i < count; ++i) {
    std::shared_ptr<Node> source, target;
    SIM_TRY(find_node(from[i], &source));
    SIM_TRY(find_node(to[i], &target));
    if (source->graph != graph.get() || target->graph != graph.get()) {
      return fail(CUDA_ERROR_INVALID_VALUE, "edge %zu leaves the graph", i);
    }
    CUgraphEdgeData edge = data == nullptr ? CUgraphEdgeData{} : data[add && trap_edge_data() ? 0 : i];
    if (add) {
      SIM_TRY(add_edge(*source, *target, edge));
      continue;
    }
    auto same = [&](Node* other) {
      return [&edge, other](const Edge& one) {
        return one.other == other && std::memcmp(&one.data, &edge, sizeof edge) == 0;
      };
    };
    if (std::erase_if(target->dependencies, same(source.get())) == 0) {
      return fail(CUDA_ERROR_INVALID_VALUE, "edge %zu is not there", i);
    }
    std::erase_if(source->dependents, same(target.get()));
  }
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddDependencies, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count),
        (graph, from, to, count)) {
  return change_edges(graph, from, to, nullptr, count, true);
}
SIM_API(cuGraphAddDependencies_v2,
        (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data, size_t count),
        (graph, from, to, data, count)) {
  return change_edges(graph, from, to, data, count, true);
}
SIM_API(cuGraphRemoveDependencies, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count),
        (graph, from, to, count)) {
  return change_edges(graph, from, to, nullptr, count, false);
}
SIM_API(cuGraphRemoveDependencies_v2,
        (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data, size_t count),
        (graph, from, to, data, count)) {
  return change_edges(graph, from, to, data, count, false);
}

SIM_API(cuGraphDestroyNode, (CUgraphNode handle), (handle)) {
  std::shared_ptr<Node> node;
  SIM_TRY(find_node(handle, &node));
  if (node->graph->being_captured) return fail(CUDA_ERROR_INVALID_VALUE, "the graph is still being captured");
  if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return fail(CUDA_ERROR_NOT_SUPPORTED, "memory nodes cannot be removed");
  }
  remove_node(*node);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphDebugDotPrint, (CUgraph handle, const char* path, unsigned flags), (handle, path, flags)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "we");
  if (file == nullptr) return fail(CUDA_ERROR_OPERATING_SYSTEM, "cannot write %s", path == nullptr ? "(null)" : path);
  std::fprintf(file, "digraph graph_%p {\n", static_cast<void*>(handle));
  for (const auto& node : graph->nodes) {
    const auto* kernel = std::get_if<KernelWork>(&node->work);
    std::fprintf(file, "  \"%p\" [label=\"type %d %s\"];\n", static_cast<void*>(node->handle),
                 static_cast<int>(node->type), kernel != nullptr ? kernel->function->image.name.c_str() : "");
    for (const Edge& edge : node->dependents) {
      std::fprintf(file, "  \"%p\" -> \"%p\";\n", static_cast<void*>(node->handle),
                   static_cast<void*>(edge.other->handle));
    }
  }
  std::fprintf(file, "}\n");
  return std::fclose(file) == 0 ? CUDA_SUCCESS : fail(CUDA_ERROR_OPERATING_SYSTEM, "cannot write %s", path);
}

}  // namespace foundry::sim
