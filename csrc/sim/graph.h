// Graphs and their nodes.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "csrc/sim/handles.h"
#include "csrc/sim/work.h"

namespace foundry::sim {

struct Node;

struct Edge {
  Node* other = nullptr;
  CUgraphEdgeData data = {};
};

struct Node {
  CUgraphNode handle = nullptr;
  Graph* graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Work work;
  std::vector<Edge> dependencies, dependents;
  CUgraphNode cloned_from = nullptr;
  std::vector<std::shared_ptr<Graph>> bodies;  // of a conditional node
  std::vector<CUgraph> body_handles;
};

struct UserObject;

struct Graph {
  CUgraph handle = nullptr;
  std::vector<std::shared_ptr<Node>> nodes;  // in order of creation
  Node* owner = nullptr;                     // the child graph node that this graph belongs to
  bool being_captured = false;
  CUgraph cloned_from = nullptr;
  std::map<std::shared_ptr<UserObject>, unsigned> user_objects;
};

HandleTable<Graph, CUgraph, Kind::kGraph>& graphs();
HandleTable<Node, CUgraphNode, Kind::kNode>& nodes();

CUresult find_graph(CUgraph handle, std::shared_ptr<Graph>* graph);
CUresult find_node(CUgraphNode handle, std::shared_ptr<Node>* node);

std::shared_ptr<Graph> make_graph();
void drop_graph(Graph& graph);  // ends its nodes and handles

// Adds a node behind `dependencies`; nothing is added on failure.
CUresult add_node(Graph& graph, CUgraphNodeType type, Work work, const std::vector<Edge>& dependencies, Node** out);
CUresult add_edge(Node& from, Node& to, const CUgraphEdgeData& data);
CUresult check_edge(const Node& from, const Node& to, const CUgraphEdgeData& data);
std::shared_ptr<Graph> clone_graph(const Graph& graph);

}  // namespace foundry::sim
