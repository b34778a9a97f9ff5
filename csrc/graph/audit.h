// Pointer audit: classifies every word of every graph's nodes that is a device or pinned host address.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/graph/memory_map.h"
#include "csrc/graph/snapshot.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

// Who made allocations, for sentences: "forward (model.py:12) < step (engine.py:40); libtorch.so+0x1234". Empty where
// that is not known.
class Origins {
 public:
  virtual ~Origins() = default;
  virtual std::string of(const foundry_range& allocation) const = 0;
  virtual std::string of_host(uint64_t address) const = 0;
};

struct AuditInput {
  GraphView graphs;  // `module_globals` holds the variables of this process, with their addresses
  const MemoryMap* memory = nullptr;
  std::span<const NamedRange> host_ranges;         // PointerRecord::target of class `host`
  std::span<const NamedRange> relocatable_ranges;  // PointerRecord::target of class `relocatable`
  const Origins* origins = nullptr;                // may be null
};

enum class FindingKind : uint32_t {
  dangling,        // inside a zone, where no live range is
  unknown_device,  // device memory outside every zone that is no module variable and in no registered range
  pinned_host,     // pinned host memory that was not registered
  unanchored,      // in a rebuilt zone, but no anchor covers it
};

struct Finding {
  FindingKind kind;
  uint32_t graph;    // the captured graph; for a node of a child graph, the graph that holds it
  uint32_t pointer;  // index into AuditResult::pointers
  // What, where and what to do: graph, node, kernel, argument and offset, value, nearest allocation. Empty behind the
  // first kMostTextsPerGraph of a graph.
  std::string text;
};

// A range (index into memory->ranges()) that nodes of a captured graph reach and LOAD must materialize.
struct Root {
  uint32_t graph;  // the captured graph, as in Finding
  uint32_t range;
  auto operator<=>(const Root&) const = default;
};

// Of one captured graph; finding_text (audit_text.h) words further ones for those who need them.
inline constexpr uint32_t kMostTextsPerGraph = 32;

struct AuditResult {
  // In order of graph, node, parameter and offset. Words that lie outside every zone and are nothing the driver knows
  // are no pointers. Class of unknown device memory: `dangling`; of unregistered pinned memory: `host` with target
  // kNone.
  std::vector<archive::PointerRecord> pointers;
  std::vector<Finding> findings;  // in the same order
  std::vector<Root> roots;        // ascending, each once
  uint64_t words = 0;             // looked at
  uint64_t asked = 0;             // times the driver was asked about one
};

// What to do about a finding is the caller's decision. Errors: `driver` if the driver cannot be asked about addresses.
Result<AuditResult> audit(const driver::Driver& driver, const AuditInput& input);

}  // namespace foundry::graph
