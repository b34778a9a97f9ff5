#include "csrc/graph/graph_reader.h"

#include <cstring>
#include <deque>

#include "csrc/archive/validate.h"
#include "csrc/base/text.h"
#include "csrc/graph/node_types.h"

namespace foundry::graph {

using archive::NodeRecord;

bool EventTable::name(CUevent event, std::string name, uint32_t flags) {
  const Named& named = named_[event] = {std::move(name), flags};
  const auto known = by_event_.find(event);
  if (known == by_event_.end()) return false;
  archive::EventRecord& record = tables_.graph_events[known->second];
  record.name = tables_.graphs_strings.add(named.name);
  record.flags = flags;
  return true;
}

uint32_t EventTable::find(CUevent event) {
  const auto [entry, is_new] = by_event_.emplace(event, static_cast<uint32_t>(events_.size()));
  if (is_new) {
    events_.push_back(event);
    archive::EventRecord record{};
    record.identity = entry->second;
    const auto named = named_.find(event);
    if (named != named_.end()) record.flags = named->second.flags;
    tables_.graph_events.push_back(record);
  }
  return entry->second;
}

void EventTable::commit() {
  for (; committed_ < events_.size(); ++committed_) {
    const auto named = named_.find(events_[committed_]);
    if (named != named_.end()) {
      tables_.graph_events[committed_].name = tables_.graphs_strings.add(named->second.name);
    }
  }
}

void EventTable::roll_back() {
  events_.resize(tables_.graph_events.size());
  boost::unordered::erase_if(by_event_, [&](const auto& entry) { return entry.second >= events_.size(); });
}

Result<GraphReader::Shape> GraphReader::read_shape(CUgraph graph) const {
  Shape shape;
  size_t node_count = 0;
  FOUNDRY_CU(driver_, cuGraphGetNodes, graph, nullptr, &node_count);
  shape.nodes.resize(node_count);
  if (node_count > 0) FOUNDRY_CU(driver_, cuGraphGetNodes, graph, shape.nodes.data(), &node_count);
  shape.nodes.resize(node_count);
  shape.types.resize(node_count);
  boost::unordered_flat_map<CUgraphNode, uint32_t> index_of;
  index_of.reserve(node_count);
  for (uint32_t i = 0; i < node_count; ++i) {
    static_assert(sizeof(CUgraphNodeType) == sizeof shape.types[i]);
    FOUNDRY_CU(driver_, cuGraphNodeGetType, shape.nodes[i], reinterpret_cast<CUgraphNodeType*>(&shape.types[i]));
    index_of.emplace(shape.nodes[i], i);
  }

  size_t edge_count = 0;
  FOUNDRY_CU(driver_, cuGraphGetEdges, graph, nullptr, nullptr, nullptr, &edge_count);
  if (edge_count == 0) return shape;
  std::vector<CUgraphNode> from(edge_count), to(edge_count);
  std::vector<CUgraphEdgeData> data(edge_count);
  FOUNDRY_CU(driver_, cuGraphGetEdges, graph, from.data(), to.data(), data.data(), &edge_count);
  shape.edges.reserve(edge_count);
  for (size_t i = 0; i < edge_count; ++i) {
    const auto first = index_of.find(from[i]);
    const auto second = index_of.find(to[i]);
    if (first == index_of.end() || second == index_of.end()) {
      return Error{ErrorKind::driver, 0, "the driver reports an edge to a node that is not in the graph"};
    }
    static constexpr unsigned char kZeros[sizeof data[i].reserved] = {};
    if (std::memcmp(data[i].reserved, kZeros, sizeof kZeros) != 0) {
      return Error{ErrorKind::unsupported, 0,
                   format("the edge from node %u to node %u carries data of a newer CUDA version", first->second,
                          second->second)};
    }
    shape.edges.push_back({first->second, second->second, data[i].from_port, data[i].to_port, data[i].type, {}});
  }
  return shape;
}

Result<uint32_t> GraphReader::read(CUgraph graph, const std::string& where, uint32_t depth) {
  if (depth > archive::kDeepestChildGraph) {
    return Error{
        ErrorKind::unsupported, 0,
        format("%s: child graphs are nested deeper than %u levels", where.c_str(), archive::kDeepestChildGraph)};
  }
  auto read_result = read_shape(graph);
  if (!read_result.ok()) return std::move(read_result).error().within(where);
  const Shape shape = std::move(read_result).value();

  std::vector<NodeRecord> nodes;
  nodes.reserve(shape.nodes.size());
  for (uint32_t i = 0; i < shape.nodes.size(); ++i) {
    FOUNDRY_ASSIGN(const NodeRecord node, read_node(shape, i, where, depth));
    nodes.push_back(node);
  }

  archive::GraphRecord record{};
  record.first_node = static_cast<uint32_t>(tables_.nodes.size());
  record.node_count = static_cast<uint32_t>(nodes.size());
  record.first_edge = static_cast<uint32_t>(tables_.edges.size());
  record.edge_count = static_cast<uint32_t>(shape.edges.size());
  record.flags = depth > 0 ? archive::kGraphIsChild : 0u;
  tables_.nodes.insert(tables_.nodes.end(), nodes.begin(), nodes.end());
  tables_.edges.insert(tables_.edges.end(), shape.edges.begin(), shape.edges.end());
  tables_.graphs.push_back(record);
  return static_cast<uint32_t>(tables_.graphs.size() - 1);
}

Result<NodeRecord> GraphReader::read_node(const Shape& shape, uint32_t index, const std::string& where,
                                          uint32_t depth) {
  const CUgraphNode node = shape.nodes[index];
  const uint32_t type = shape.types[index];
  const NodeTypeInfo* info = node_type_info(type);
  const std::string words = info != nullptr ? info->words : format("type %u", type);

  Result<uint32_t> payload = kNone;
  if (info == nullptr || info->handling == NodeHandling::refused) {
    payload = Error{ErrorKind::unsupported, 0,
                    info == nullptr ? "Foundry does not know nodes of this type; a newer Foundry may"
                                    : format("Foundry cannot restore %s nodes; %s", info->words, info->advice)};
  } else {
    switch (type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        payload = read_kernel(node);
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        payload = read_memcpy(node);
        break;
      case CU_GRAPH_NODE_TYPE_MEMSET:
        payload = read_memset(node);
        break;
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        payload = read_event(node, type);
        break;
      case CU_GRAPH_NODE_TYPE_GRAPH: {
        CUgraph child = nullptr;
        const CUresult code = driver_.cuGraphChildGraphNodeGetGraph(node, &child);
        if (code != CUDA_SUCCESS) {
          payload = driver_.error(code, "cuGraphChildGraphNodeGetGraph");
          break;
        }
        // Its errors name the way to it already.
        FOUNDRY_ASSIGN(payload, read(child, format("%s, node %u (child graph)", where.c_str(), index), depth + 1));
        break;
      }
      default:
        break;  // an empty node has no payload
    }
  }
  if (payload.ok()) return NodeRecord{type, payload.value()};

  std::string what = words;
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
    CUDA_KERNEL_NODE_PARAMS params{};
    if (driver_.cuGraphKernelNodeGetParams(node, &params) == CUDA_SUCCESS) {
      what += " " + functions_.readable_name(params.func, params.kern);
    }
  }
  return std::move(payload).error().within(
      format("%s, node %u (%s; %s)", where.c_str(), index, what.c_str(), neighbours(shape, index).c_str()));
}

Result<uint32_t> GraphReader::read_memset(CUgraphNode node) {
  CUDA_MEMSET_NODE_PARAMS params{};
  FOUNDRY_CU(driver_, cuGraphMemsetNodeGetParams, node, &params);
  tables_.memsets.push_back({params.dst, params.pitch, params.width, params.height, params.value, params.elementSize});
  return static_cast<uint32_t>(tables_.memsets.size() - 1);
}

Result<uint32_t> GraphReader::read_event(CUgraphNode node, uint32_t type) {
  CUevent event = nullptr;
  if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    FOUNDRY_CU(driver_, cuGraphEventRecordNodeGetEvent, node, &event);
  } else {
    FOUNDRY_CU(driver_, cuGraphEventWaitNodeGetEvent, node, &event);
  }
  return events_.find(event);
}

std::string GraphReader::neighbours(const Shape& shape, uint32_t index) const {
  const auto nearest_kernel = [&](bool before) -> std::string {
    std::vector<bool> seen(shape.nodes.size(), false);
    std::deque<uint32_t> queue{index};
    seen[index] = true;
    while (!queue.empty()) {
      const uint32_t at = queue.front();
      queue.pop_front();
      if (at != index && shape.types[at] == CU_GRAPH_NODE_TYPE_KERNEL) {
        CUDA_KERNEL_NODE_PARAMS params{};
        if (driver_.cuGraphKernelNodeGetParams(shape.nodes[at], &params) != CUDA_SUCCESS) return "a kernel";
        return format("kernel %s (node %u)", functions_.readable_name(params.func, params.kern).c_str(), at);
      }
      for (const archive::EdgeRecord& edge : shape.edges) {
        const uint32_t here = before ? edge.to : edge.from;
        const uint32_t next = before ? edge.from : edge.to;
        if (here == at && !seen[next]) {
          seen[next] = true;
          queue.push_back(next);
        }
      }
    }
    return "no kernel";
  };
  return format("after %s, before %s", nearest_kernel(true).c_str(), nearest_kernel(false).c_str());
}

}  // namespace foundry::graph
