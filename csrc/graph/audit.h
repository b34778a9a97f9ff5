// Pointer audit: classifies every word of every graph's nodes that is a device or registered host address.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/graph/memory_map.h"
#include "csrc/graph/snapshot.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

struct AuditInput {
  GraphView graphs;  // `module_globals` filled in with the addresses of this process
  const MemoryMap* memory = nullptr;
  std::span<const NamedRange> host_ranges;         // PointerRecord::target of class `host`
  std::span<const NamedRange> relocatable_ranges;  // PointerRecord::target of class `relocatable`
};

enum class FindingKind : uint32_t {
  dangling,        // inside a zone, where no live range is
  unknown_device,  // device memory outside every zone that is no module global and no registered range
  pinned_host,     // pinned host memory that was not registered
  unanchored,      // in a rebuilt zone, but no anchor covers it
};

struct Finding {
  FindingKind kind;
  uint32_t graph;    // the captured graph; for a node of a child graph, the graph that holds it
  uint32_t pointer;  // index into AuditResult::pointers
  std::string text;  // full sentence: graph, node, kernel, argument, value, nearest allocation, what to do
};

struct AuditResult {
  std::vector<archive::PointerRecord> pointers;  // in order of graph, node, parameter and offset
  std::vector<Finding> findings;                 // in the same order
  // Ranges of the memory map (indices, ascending) that graphs reach directly and LOAD must materialize.
  std::vector<uint32_t> roots;
  uint64_t words = 0;           // looked at
  uint64_t distinct_words = 0;  // that the driver was asked about
};

// What to do about a finding is the caller's decision. Errors: `driver` when the driver cannot be asked.
Result<AuditResult> audit(const driver::Driver& driver, const AuditInput& input);

}  // namespace foundry::graph
