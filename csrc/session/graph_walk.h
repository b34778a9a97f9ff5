// Visits the kernels of a graph, those of its child graphs included.
#pragma once

#include <cuda.h>

#include "csrc/graph/tables.h"

namespace foundry::session {

template <class Visit>
void walk_kernels(const graph::GraphView& view, uint32_t index, Visit&& visit) {
  const archive::GraphRecord& graph = view.graphs[index];
  for (const archive::NodeRecord& node : view.nodes.subspan(graph.first_node, graph.node_count)) {
    if (node.type == CU_GRAPH_NODE_TYPE_GRAPH) walk_kernels(view, node.payload, visit);
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) visit(view.kernels[node.payload]);
  }
}

}  // namespace foundry::session
