#include "csrc/graph/graph_builder.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "csrc/base/text.h"
#include "csrc/graph/node_attributes.h"
#include "csrc/graph/node_types.h"

namespace foundry::graph {

using archive::GraphRecord;
using archive::KernelRecord;
using archive::PointerClass;
using archive::PointerRecord;
using Rebound = std::span<const PointerRecord* const>;

GraphBuilder::GraphBuilder(const Context& context) : c_(context) {
  for (const PointerRecord& pointer : c_.view.pointers) {
    const auto kind = static_cast<PointerClass>(pointer.pointer_class);
    if (kind == PointerClass::module_global || kind == PointerClass::relocatable || kind == PointerClass::host) {
      rebound_.push_back(&pointer);
    }
  }
  std::stable_sort(rebound_.begin(), rebound_.end(), [](const PointerRecord* a, const PointerRecord* b) {
    return std::tie(a->graph, a->node) < std::tie(b->graph, b->node);
  });
}

Result<CUgraph> GraphBuilder::build(uint32_t graph, LookupTime& time) const {
  return build(graph, "graph " + std::string(c_.view.text(c_.view.graphs[graph].name)), time);
}

Result<CUgraph> GraphBuilder::build(uint32_t graph, const std::string& where, LookupTime& time) const {
  CUgraph built = nullptr;
  const CUresult code = c_.driver.cuGraphCreate(&built, 0);
  if (code != CUDA_SUCCESS) return c_.driver.error(code, "cuGraphCreate").within(where);
  Status status = fill(built, graph, where, time);
  if (status.ok()) return built;
  c_.driver.cuGraphDestroy(built);
  return std::move(status).error();
}

Status GraphBuilder::fill(CUgraph into, uint32_t graph, const std::string& where, LookupTime& time) const {
  const GraphRecord& record = c_.view.graphs[graph];
  std::vector<CUgraphNode> nodes(record.node_count);
  for (uint32_t i = 0; i < record.node_count; ++i) {
    // One node that cannot be added makes the whole graph wrong: it would instantiate and compute garbage.
    Status status = add_node(into, graph, i, where, time, nodes[i]);
    if (status.ok()) continue;
    const archive::NodeRecord& node = c_.view.nodes[record.first_node + i];
    if (node.type == CU_GRAPH_NODE_TYPE_GRAPH) return status;  // names the way to the inner node already
    const NodeTypeInfo* info = node_type_info(node.type);
    std::string what = info != nullptr ? info->words : format("type %u", node.type);
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) {
      what += " " + c_.kernels.readable_name(c_.view.kernels[node.payload].function);
    }
    return std::move(status).error().within(format("%s, node %u (%s)", where.c_str(), i, what.c_str()));
  }
  Status status = add_edges(into, record, nodes);
  if (!status.ok()) return std::move(status).error().within(where);
  return success();
}

Status GraphBuilder::add_node(CUgraph into, uint32_t graph, uint32_t node, const std::string& where, LookupTime& time,
                              CUgraphNode& added) const {
  const archive::NodeRecord& record = c_.view.nodes[c_.view.graphs[graph].first_node + node];
  const Rebound rebound = rebound_of(graph, node);
  switch (record.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return add_kernel(into, record.payload, rebound, time, added);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return add_memcpy(into, record.payload, rebound, added);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return add_memset(into, record.payload, rebound, added);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      FOUNDRY_CU(c_.driver, cuGraphAddEmptyNode, &added, into, nullptr, 0);
      return success();
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      FOUNDRY_CU(c_.driver, cuGraphAddEventRecordNode, &added, into, nullptr, 0, c_.events[record.payload]);
      return success();
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      FOUNDRY_CU(c_.driver, cuGraphAddEventWaitNode, &added, into, nullptr, 0, c_.events[record.payload]);
      return success();
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      const std::string inside = format("%s, node %u (child graph)", where.c_str(), node);
      FOUNDRY_ASSIGN(const CUgraph child, build(record.payload, inside, time));
      const CUresult code = c_.driver.cuGraphAddChildGraphNode(&added, into, nullptr, 0, child);
      c_.driver.cuGraphDestroy(child);  // the node has a copy
      if (code != CUDA_SUCCESS) return c_.driver.error(code, "cuGraphAddChildGraphNode").within(inside);
      return success();
    }
    default:
      return Error{ErrorKind::mismatch, 0, "this version of Foundry does not restore nodes of this type"};
  }
}

Status GraphBuilder::add_kernel(CUgraph into, uint32_t payload, Rebound rebound, LookupTime& time,
                                CUgraphNode& added) const {
  const KernelRecord& record = c_.view.kernels[payload];
  const archive::FunctionRecord& function = c_.view.functions[record.function];
  CUDA_KERNEL_NODE_PARAMS params{};
  FOUNDRY_ASSIGN(params.func, c_.kernels.find(record.function, time));
  params.gridDimX = record.grid[0];
  params.gridDimY = record.grid[1];
  params.gridDimZ = record.grid[2];
  params.blockDimX = record.block[0];
  params.blockDimY = record.block[1];
  params.blockDimZ = record.block[2];
  params.sharedMemBytes = record.dynamic_shared_bytes;

  // The driver copies the arguments and does not write to them.
  auto* arguments = const_cast<std::byte*>(c_.view.arguments.data()) + record.arguments;
  std::vector<std::byte> shifted;
  for (const PointerRecord* pointer : rebound) {
    if (pointer->param >= function.param_count) continue;  // an operand, not a parameter
    if (shifted.empty()) shifted.assign(arguments, arguments + record.argument_bytes);
    const archive::ParamRecord& param = c_.view.params[function.first_param + pointer->param];
    uint64_t word = 0;
    if (uint64_t{pointer->offset} + sizeof word > param.bytes ||
        uint64_t{param.offset} + param.bytes > shifted.size()) {
      return Error{ErrorKind::corrupt, 0,
                   format("the archive rebinds a word at offset %u of parameter %u, which has %u bytes",
                          pointer->offset, pointer->param, param.bytes)};
    }
    std::byte* place = shifted.data() + param.offset + pointer->offset;
    std::memcpy(&word, place, sizeof word);
    if (word != pointer->value) {
      return Error{ErrorKind::corrupt, 0,
                   format("the archive rebinds parameter %u, offset %u, from %s, but the argument is %s",
                          pointer->param, pointer->offset, hex(pointer->value).c_str(), hex(word).c_str())};
    }
    FOUNDRY_ASSIGN(const uint64_t shift, shift_of(*pointer));
    word += shift;
    std::memcpy(place, &word, sizeof word);
  }
  if (!shifted.empty()) arguments = shifted.data();

  std::vector<void*> each;
  size_t bytes = record.argument_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  if (record.argument_form == static_cast<uint32_t>(archive::ArgumentForm::extra)) {
    params.extra = extra;
  } else {
    each.reserve(function.param_count);
    for (uint32_t i = 0; i < function.param_count; ++i) {
      each.push_back(arguments + c_.view.params[function.first_param + i].offset);
    }
    params.kernelParams = each.data();
  }
  FOUNDRY_CU(c_.driver, cuGraphAddKernelNode, &added, into, nullptr, 0, &params);
  return set_launch_attributes(added, record, rebound);
}

Status GraphBuilder::set_launch_attributes(CUgraphNode node, const KernelRecord& record, Rebound rebound) const {
  for (uint32_t i = 0; i < record.attribute_count; ++i) {
    const archive::LaunchAttributeRecord& attribute = c_.view.launch_attributes[record.first_attribute + i];
    const LaunchAttributeInfo* info = launch_attribute_info(attribute.id);
    if (info == nullptr || info->handling == AttributeHandling::refused ||
        info->handling == AttributeHandling::ignored) {
      return Error{
          ErrorKind::mismatch, 0,
          format("the archive sets its launch attribute %u, which this version does not restore", attribute.id)};
    }
    CUlaunchAttributeValue value;
    std::memcpy(&value, attribute.value, sizeof value);
    if (info->id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
      auto base = reinterpret_cast<uint64_t>(value.accessPolicyWindow.base_ptr);
      FOUNDRY_TRY(rebind_operand(rebound, archive::kPointerWindow, base));
      value.accessPolicyWindow.base_ptr = reinterpret_cast<void*>(base);
    }
    const CUresult code = c_.driver.cuGraphKernelNodeSetAttribute(node, info->id, &value);
    if (code != CUDA_SUCCESS) {
      return c_.driver.error(code, "cuGraphKernelNodeSetAttribute")
          .within(format("launch attribute \"%s\"", info->words));
    }
  }
  return success();
}

Status GraphBuilder::add_memcpy(CUgraph into, uint32_t payload, Rebound rebound, CUgraphNode& added) const {
  const archive::MemcpyRecord& record = c_.view.memcpys[payload];
  uint64_t source = record.source;
  uint64_t destination = record.destination;
  FOUNDRY_TRY(rebind_operand(rebound, archive::kPointerSource, source));
  FOUNDRY_TRY(rebind_operand(rebound, archive::kPointerDestination, destination));
  if ((record.flags & archive::kSourceIsHost) != 0) FOUNDRY_TRY(check_host(rebound, archive::kPointerSource));
  if ((record.flags & archive::kDestinationIsHost) != 0) FOUNDRY_TRY(check_host(rebound, archive::kPointerDestination));
  CUDA_MEMCPY3D params{};
  if ((record.flags & archive::kSourceIsHost) != 0) {
    params.srcMemoryType = CU_MEMORYTYPE_HOST;
    params.srcHost = reinterpret_cast<const void*>(source);
  } else {
    params.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    params.srcDevice = source;
  }
  if ((record.flags & archive::kDestinationIsHost) != 0) {
    params.dstMemoryType = CU_MEMORYTYPE_HOST;
    params.dstHost = reinterpret_cast<void*>(destination);
  } else {
    params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    params.dstDevice = destination;
  }
  params.srcXInBytes = record.source_x;
  params.srcY = record.source_y;
  params.srcZ = record.source_z;
  params.srcPitch = record.source_pitch;
  params.srcHeight = record.source_height;
  params.dstXInBytes = record.destination_x;
  params.dstY = record.destination_y;
  params.dstZ = record.destination_z;
  params.dstPitch = record.destination_pitch;
  params.dstHeight = record.destination_height;
  params.WidthInBytes = record.width_bytes;
  params.Height = record.height;
  params.Depth = record.depth;
  FOUNDRY_CU(c_.driver, cuGraphAddMemcpyNode, &added, into, nullptr, 0, &params, c_.context);
  return success();
}

Status GraphBuilder::add_memset(CUgraph into, uint32_t payload, Rebound rebound, CUgraphNode& added) const {
  const archive::MemsetRecord& record = c_.view.memsets[payload];
  uint64_t destination = record.destination;
  FOUNDRY_TRY(rebind_operand(rebound, archive::kPointerDestination, destination));
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = destination;
  params.pitch = record.pitch;
  params.value = record.value;
  params.elementSize = record.element_bytes;
  params.width = record.width;
  params.height = record.height;
  FOUNDRY_CU(c_.driver, cuGraphAddMemsetNode, &added, into, nullptr, 0, &params, c_.context);
  return success();
}

Status GraphBuilder::add_edges(CUgraph into, const GraphRecord& record, std::span<const CUgraphNode> nodes) const {
  // Drivers up to 610 give every edge of one call the data of its first edge: one call for each kind of edge.
  std::vector<const archive::EdgeRecord*> edges(record.edge_count);
  for (uint32_t i = 0; i < record.edge_count; ++i) edges[i] = &c_.view.edges[record.first_edge + i];
  const auto kind = [](const archive::EdgeRecord* edge) {
    return std::tie(edge->type, edge->from_port, edge->to_port);
  };
  std::stable_sort(edges.begin(), edges.end(), [&](auto* a, auto* b) { return kind(a) < kind(b); });

  std::vector<CUgraphNode> from, to;
  std::vector<CUgraphEdgeData> data;
  for (size_t first = 0; first < edges.size();) {
    size_t end = first;
    from.clear();
    to.clear();
    for (; end < edges.size() && kind(edges[end]) == kind(edges[first]); ++end) {
      from.push_back(nodes[edges[end]->from]);
      to.push_back(nodes[edges[end]->to]);
    }
    CUgraphEdgeData one{};
    one.from_port = edges[first]->from_port;
    one.to_port = edges[first]->to_port;
    one.type = edges[first]->type;
    data.assign(end - first, one);
    const CUresult code = c_.driver.cuGraphAddDependencies(into, from.data(), to.data(), data.data(), end - first);
    if (code != CUDA_SUCCESS) {
      return c_.driver.error(code, "cuGraphAddDependencies")
          .within(format("%zu edges of type %u, ports %u to %u (the first from node %u to node %u)", end - first,
                         one.type, one.from_port, one.to_port, edges[first]->from, edges[first]->to));
    }
    first = end;
  }
  return success();
}

Rebound GraphBuilder::rebound_of(uint32_t graph, uint32_t node) const {
  if (rebound_.empty()) return {};
  const auto key = std::tie(graph, node);
  const auto first = std::lower_bound(
      rebound_.begin(), rebound_.end(), key,
      [](const PointerRecord* pointer, auto& wanted) { return std::tie(pointer->graph, pointer->node) < wanted; });
  auto last = first;
  while (last != rebound_.end() && std::tie((*last)->graph, (*last)->node) == key) ++last;
  return {first, last};
}

Result<uint64_t> GraphBuilder::shift_of(const PointerRecord& pointer) const {
  if (static_cast<PointerClass>(pointer.pointer_class) == PointerClass::module_global) {
    FOUNDRY_ASSIGN(const uint64_t here, c_.libraries.global(pointer.target));
    return here - c_.view.module_globals[pointer.target].address;
  }
  if (static_cast<PointerClass>(pointer.pointer_class) == PointerClass::host) {
    if (pointer.target >= c_.host_shifts.size()) {
      return Error{ErrorKind::corrupt, 0,
                   format("host address %s belongs to no host range of the archive", hex(pointer.value).c_str())};
    }
    FOUNDRY_ASSIGN(const int64_t shift, c_.host_shifts[pointer.target]);
    return static_cast<uint64_t>(shift);
  }
  if (pointer.target >= c_.relocations.size()) {
    return Error{ErrorKind::state, 0,
                 format("it points into relocatable range %u, which was not registered on LOAD", pointer.target)};
  }
  return static_cast<uint64_t>(c_.relocations[pointer.target]);
}

Status GraphBuilder::check_host(Rebound rebound, uint32_t operand) const {
  for (const PointerRecord* pointer : rebound) {
    if (pointer->param == operand && static_cast<PointerClass>(pointer->pointer_class) == PointerClass::host) {
      return success();
    }
  }
  return Error{ErrorKind::corrupt, 0, "the archive does not say which host range it uses"};
}

Status GraphBuilder::rebind_operand(Rebound rebound, uint32_t operand, uint64_t& word) const {
  for (const PointerRecord* pointer : rebound) {
    if (pointer->param != operand) continue;
    if (word != pointer->value) {
      return Error{ErrorKind::corrupt, 0,
                   format("the archive rebinds an operand from %s, but it is %s", hex(pointer->value).c_str(),
                          hex(word).c_str())};
    }
    FOUNDRY_ASSIGN(const uint64_t shift, shift_of(*pointer));
    word += shift;
  }
  return success();
}

}  // namespace foundry::graph
