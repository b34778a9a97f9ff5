// The sentences of the pointer audit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/graph/audit.h"

namespace foundry::graph {

// Where a graph record stands: itself, or for a child graph the captured graph that holds it.
struct Holder {
  uint32_t graph = kNone;  // the captured graph
  std::string where;       // "graph decode/8", "graph decode/8, node 3 (child graph)"
};
// One per graph record.
std::vector<Holder> holders_of(const GraphView& view);

std::string finding_text(const AuditInput& input, const std::vector<Holder>& holders,
                         const archive::PointerRecord& pointer, FindingKind kind);

}  // namespace foundry::graph
