#include "csrc/graph/audit.h"

#include <algorithm>
#include <cstring>

#include "csrc/archive/extents.h"
#include "csrc/base/text.h"
#include "csrc/graph/address_classes.h"
#include "csrc/graph/audit_text.h"

namespace foundry::graph {
namespace {

using archive::Extent;
using archive::PointerRecord;

class Audit {
 public:
  Audit(const driver::Driver& driver, const AuditInput& input)
      : input_(input),
        view_(input.graphs),
        classes_(driver, input),
        holders_(holders_of(input.graphs)),
        worded_(input.graphs.graphs.size(), 0) {}

  Result<AuditResult> run() {
    for (uint32_t graph = 0; graph < view_.graphs.size(); ++graph) {
      for (uint32_t node = 0; node < view_.graphs[graph].node_count; ++node) FOUNDRY_TRY(look_at(graph, node));
    }
    std::sort(result_.roots.begin(), result_.roots.end());
    result_.roots.erase(std::unique(result_.roots.begin(), result_.roots.end()), result_.roots.end());
    result_.asked = classes_.asked();
    return std::move(result_);
  }

 private:
  Status look_at(uint32_t graph, uint32_t node) {
    const archive::NodeRecord& record = view_.nodes[view_.graphs[graph].first_node + node];
    graph_ = graph;
    node_ = node;
    switch (record.type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        return look_at_kernel(view_.kernels[record.payload]);
      case CU_GRAPH_NODE_TYPE_MEMCPY: {
        const archive::MemcpyRecord& copy = view_.memcpys[record.payload];
        FOUNDRY_TRY(operand(archive::kPointerSource, copy.source, source_extent(copy)));
        return operand(archive::kPointerDestination, copy.destination, destination_extent(copy));
      }
      case CU_GRAPH_NODE_TYPE_MEMSET: {
        const archive::MemsetRecord& set = view_.memsets[record.payload];
        return operand(archive::kPointerDestination, set.destination, extent(set));
      }
      default:
        return success();
    }
  }

  // Pointers are aligned, also inside structs: every 8-byte word of the buffer that lies within one parameter.
  Status look_at_kernel(const archive::KernelRecord& kernel) {
    const archive::FunctionRecord& function = view_.functions[kernel.function];
    for (uint32_t param = 0; param < function.param_count; ++param) {
      const archive::ParamRecord& layout = view_.params[function.first_param + param];
      for (uint32_t offset = (8 - layout.offset % 8) % 8; offset + 8 <= layout.bytes; offset += 8) {
        uint64_t value = 0;
        std::memcpy(&value, view_.arguments.data() + kernel.arguments + layout.offset + offset, sizeof value);
        FOUNDRY_TRY(word(param, offset, value));
      }
    }
    for (uint32_t i = 0; i < kernel.attribute_count; ++i) {
      const archive::LaunchAttributeRecord& attribute = view_.launch_attributes[kernel.first_attribute + i];
      if (attribute.id != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) continue;
      CUaccessPolicyWindow window;
      std::memcpy(&window, attribute.value, sizeof window);
      const auto base = reinterpret_cast<uint64_t>(window.base_ptr);
      FOUNDRY_TRY(operand(archive::kPointerWindow, base, {base, window.num_bytes}));
    }
    return success();
  }

  // An operand with its extent: every range that the node touches is reached, not only the one it begins in.
  Status operand(uint32_t which, uint64_t value, const Extent& touched) {
    FOUNDRY_TRY(word(which, 0, value));
    const auto& ranges = input_.memory->ranges().ranges();
    auto range = std::partition_point(ranges.begin(), ranges.end(), [&](const foundry_range& candidate) {
      return candidate.address + layout::extent(candidate) <= touched.address;
    });
    for (; range != ranges.end() && range->address < touched.address + touched.bytes; ++range) {
      reach(static_cast<uint32_t>(range - ranges.begin()));
    }
    return success();
  }

  void reach(uint32_t range) {
    const uint32_t state = input_.memory->ranges()[range].state;
    const bool live = state == FOUNDRY_RANGE_LIVE || state == FOUNDRY_RANGE_MATERIALIZED;
    if (live && input_.memory->is_materialized(range)) result_.roots.push_back({holders_[graph_].graph, range});
  }

  Status word(uint32_t param, uint32_t offset, uint64_t value) {
    ++result_.words;
    FOUNDRY_ASSIGN(const AddressClass* found, classes_.classify(value));
    if (found == nullptr) return success();
    result_.pointers.push_back(
        {value, graph_, node_, param, offset, static_cast<uint32_t>(found->pointer_class), found->target});
    if (found->range != kNone) reach(found->range);
    if (!found->finding) return success();
    const uint32_t captured = holders_[graph_].graph;
    const auto index = static_cast<uint32_t>(result_.pointers.size() - 1);
    Finding finding{*found->finding, captured, index, {}};
    if (worded_[captured]++ < kMostTextsPerGraph) {
      finding.text = finding_text(input_, holders_, result_.pointers[index], finding.kind);
    }
    result_.findings.push_back(std::move(finding));
    return success();
  }

  const AuditInput& input_;
  const GraphView& view_;
  AddressClasses classes_;
  const std::vector<Holder> holders_;
  std::vector<uint32_t> worded_;  // findings by captured graph
  AuditResult result_;
  uint32_t graph_ = 0;
  uint32_t node_ = 0;
};

}  // namespace

Result<AuditResult> audit(const driver::Driver& driver, const AuditInput& input) { return Audit(driver, input).run(); }

}  // namespace foundry::graph
