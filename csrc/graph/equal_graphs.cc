#include "csrc/graph/equal_graphs.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/archive/records.h"

namespace foundry::graph {
namespace {

using archive::GraphRecord;
using archive::KernelRecord;
using archive::NodeRecord;
using archive::PointerClass;
using archive::PointerRecord;

template <class T>
bool same_bytes(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

class Comparison {
 public:
  explicit Comparison(const GraphView& view) : view_(view), moving_(view.graphs.size()) {
    // Words that LOAD changes.
    for (uint32_t i = 0; i < view.pointers.size(); ++i) {
      const auto kind = static_cast<PointerClass>(view.pointers[i].pointer_class);
      if (kind == PointerClass::module_global || kind == PointerClass::host || kind == PointerClass::relocatable) {
        moving_[view.pointers[i].graph].push_back(i);
      }
    }
  }

  std::span<const NodeRecord> nodes(uint32_t graph) const {
    return view_.nodes.subspan(view_.graphs[graph].first_node, view_.graphs[graph].node_count);
  }

  bool has_kernels_only(uint32_t graph) const {
    const auto all = nodes(graph);
    return std::all_of(all.begin(), all.end(), [](const NodeRecord& node) {
      return node.type == CU_GRAPH_NODE_TYPE_KERNEL || node.type == CU_GRAPH_NODE_TYPE_EMPTY;
    });
  }

  // Equal for equal graphs, and quickly made: without arguments.
  uint64_t key(uint32_t graph) const {
    uint64_t key = 0xcbf29ce484222325u;
    const auto add = [&](uint64_t word) { key = (key ^ word) * 0x100000001b3u; };
    add(view_.graphs[graph].node_count);
    add(view_.graphs[graph].edge_count);
    for (const NodeRecord& node : nodes(graph)) {
      add(node.type);
      if (node.type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
      const KernelRecord& kernel = view_.kernels[node.payload];
      add(kernel.function);
      for (const uint32_t extent : kernel.grid) add(extent);
      add(kernel.block[0]);
    }
    return key;
  }

  bool equal(uint32_t a, uint32_t b) const {
    const GraphRecord& x = view_.graphs[a];
    const GraphRecord& y = view_.graphs[b];
    const auto draws = [](const GraphRecord& graph) {
      return std::tuple(graph.flags, graph.generator_increment, graph.generator_seed, graph.generator_offset);
    };
    return draws(x) == draws(y) && same_nodes(a, b) &&
           same_bytes(view_.edges.subspan(x.first_edge, x.edge_count),
                      view_.edges.subspan(y.first_edge, y.edge_count)) &&
           std::equal(moving_[a].begin(), moving_[a].end(), moving_[b].begin(), moving_[b].end(),
                      [&](uint32_t p, uint32_t q) { return word(view_.pointers[p]) == word(view_.pointers[q]); });
  }

 private:
  static std::tuple<uint64_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t> word(const PointerRecord& pointer) {
    return {pointer.value, pointer.node, pointer.param, pointer.offset, pointer.pointer_class, pointer.target};
  }

  bool same_nodes(uint32_t a, uint32_t b) const {
    const auto first = nodes(a);
    const auto second = nodes(b);
    return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                      [&](const NodeRecord& x, const NodeRecord& y) {
                        return x.type == y.type && (x.type != CU_GRAPH_NODE_TYPE_KERNEL ||
                                                    same_kernels(view_.kernels[x.payload], view_.kernels[y.payload]));
                      });
  }

  bool same_kernels(const KernelRecord& x, const KernelRecord& y) const {
    const auto launch = [](const KernelRecord& kernel) {
      return std::tuple(kernel.function, kernel.grid[0], kernel.grid[1], kernel.grid[2], kernel.block[0],
                        kernel.block[1], kernel.block[2], kernel.dynamic_shared_bytes, kernel.argument_form);
    };
    return launch(x) == launch(y) &&
           same_bytes(view_.arguments.subspan(x.arguments, x.argument_bytes),
                      view_.arguments.subspan(y.arguments, y.argument_bytes)) &&
           same_bytes(view_.launch_attributes.subspan(x.first_attribute, x.attribute_count),
                      view_.launch_attributes.subspan(y.first_attribute, y.attribute_count));
  }

  const GraphView& view_;
  std::vector<std::vector<uint32_t>> moving_;  // by graph: indices into `pointers`
};

}  // namespace

std::vector<uint32_t> first_equals(const GraphView& view, std::span<const uint32_t> order) {
  std::vector<uint32_t> first(view.graphs.size());
  std::iota(first.begin(), first.end(), 0u);
  const Comparison comparison(view);
  boost::unordered_flat_map<uint64_t, std::vector<uint32_t>> distinct;  // by key
  for (const uint32_t graph : order) {
    if (!comparison.has_kernels_only(graph)) continue;
    std::vector<uint32_t>& alike = distinct[comparison.key(graph)];
    const auto found =
        std::find_if(alike.begin(), alike.end(), [&](uint32_t other) { return comparison.equal(other, graph); });
    if (found != alike.end()) {
      first[graph] = *found;
    } else {
      alike.push_back(graph);
    }
  }
  return first;
}

}  // namespace foundry::graph
