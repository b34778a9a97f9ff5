#include "csrc/graph/audit_text.h"

#include "csrc/base/text.h"
#include "csrc/graph/node_types.h"

namespace foundry::graph {
namespace {

using archive::PointerRecord;

std::string node_words(const AuditInput& input, const PointerRecord& pointer) {
  const GraphView& view = input.graphs;
  const archive::NodeRecord& node = view.nodes[view.graphs[pointer.graph].first_node + pointer.node];
  const NodeTypeInfo* info = node_type_info(node.type);
  std::string words = info != nullptr ? info->words : format("type %u", node.type);
  if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    const archive::FunctionRecord& function = view.functions[view.kernels[node.payload].function];
    words += " " + demangle(std::string(view.text(function.name)));
  }
  return words;
}

std::string operand_words(const PointerRecord& pointer) {
  switch (pointer.param) {
    case archive::kPointerSource:
      return "its source";
    case archive::kPointerDestination:
      return "its destination";
    case archive::kPointerWindow:
      return "its access-policy window";
    default:
      return format("the word at offset %u of argument %u", pointer.offset, pointer.param);
  }
}

std::string made_by(const std::string& origin) { return origin.empty() ? "" : ", made by " + origin; }

std::string allocation_words(const AuditInput& input, const foundry_range& range) {
  const MemoryMap& memory = *input.memory;
  const uint32_t zone = memory.zone_of(range.address);
  return format("allocation %llu (%s at %s in zone %s%s)", static_cast<unsigned long long>(range.ordinal),
                bytes_text(range.bytes).c_str(), hex(range.address).c_str(),
                zone == kNone ? "?" : memory.zones()[zone].name,
                input.origins == nullptr ? "" : made_by(input.origins->of(range)).c_str());
}

// "inside allocation 7 (...), which was freed", "4.00 KiB behind allocation 7 (...)".
std::string place_words(const AuditInput& input, uint64_t address) {
  const MemoryMap& memory = *input.memory;
  if (const uint32_t inside = memory.range_of(address); inside != kNone) {
    const foundry_range& range = memory.ranges()[inside];
    const bool freed = range.state == FOUNDRY_RANGE_QUARANTINED || range.state == FOUNDRY_RANGE_RELEASED;
    return "inside " + allocation_words(input, range) + (freed ? ", which was freed" : "");
  }
  const auto nearest = memory.ranges().nearest(address);
  if (!nearest) return "in a zone without any allocation";
  const foundry_range& range = memory.ranges()[*nearest];
  const bool behind = address >= range.address;
  const uint64_t distance = behind ? address - (range.address + layout::extent(range)) : range.address - address;
  return format("%s %s %s", bytes_text(distance).c_str(), behind ? "behind" : "in front of",
                allocation_words(input, range).c_str());
}

}  // namespace

std::vector<Holder> holders_of(const GraphView& view) {
  std::vector<Holder> holders(view.graphs.size());
  // A child graph stands before the graph that holds it, so the outer one is named first going backwards.
  for (uint32_t graph = static_cast<uint32_t>(view.graphs.size()); graph-- > 0;) {
    if (holders[graph].graph == kNone)
      holders[graph] = {graph, "graph " + std::string(view.text(view.graphs[graph].name))};
    for (uint32_t node = 0; node < view.graphs[graph].node_count; ++node) {
      const archive::NodeRecord& record = view.nodes[view.graphs[graph].first_node + node];
      if (record.type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
      holders[record.payload] = {holders[graph].graph,
                                 format("%s, node %u (child graph)", holders[graph].where.c_str(), node)};
    }
  }
  return holders;
}

std::string finding_text(const AuditInput& input, const std::vector<Holder>& holders, const PointerRecord& pointer,
                         FindingKind kind) {
  const std::string place = place_words(input, pointer.value);
  std::string what;
  switch (kind) {
    case FindingKind::dangling:
      what = format(
          "where nothing is allocated (%s); keep the tensor alive for as long as the graph is, or capture anew "
          "after the last change of its memory",
          place.c_str());
      break;
    case FindingKind::unknown_device:
      what =
          "device memory that was allocated outside Foundry's zones and is no module variable; it must be allocated "
          "after Foundry began, or be registered as a relocatable range";
      break;
    case FindingKind::pinned_host:
      what = format(
          "pinned host memory%s, which will not exist on LOAD; register the host range (register_host), or copy to the "
          "device outside the capture",
          input.origins == nullptr ? "" : made_by(input.origins->of_host(pointer.value)).c_str());
      break;
    case FindingKind::unanchored:
      what = format(
          "memory of a rebuilt zone that no registered tensor covers (%s); register the tensor, or allocate it "
          "outside that phase",
          place.c_str());
      break;
  }
  return format("%s, node %u (%s): %s is %s, %s", holders[pointer.graph].where.c_str(), pointer.node,
                node_words(input, pointer).c_str(), operand_words(pointer).c_str(), hex(pointer.value).c_str(),
                what.c_str());
}

}  // namespace foundry::graph
