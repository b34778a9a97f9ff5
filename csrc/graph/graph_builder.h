// LOAD: builds the CUgraph of one graph record: nodes, attributes, edges, with rebound argument words.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/graph/kernels.h"
#include "csrc/graph/libraries.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

// Thread-safe once constructed. Building needs the context current.
class GraphBuilder {
 public:
  struct Context {
    const driver::Driver& driver;
    const GraphView& view;
    Libraries& libraries;
    Kernels& kernels;
    CUcontext context;
    std::span<const CUevent> events;       // by index into view.graph_events
    std::span<const int64_t> relocations;  // by target of pointers of class `relocatable`
    // By target of pointers of class `host`; an error says why there is no such memory here. May change until the first
    // graph with such pointers is built.
    std::span<const Result<int64_t>> host_shifts;
  };
  explicit GraphBuilder(const Context& context);

  // The caller destroys the graph. Errors name graph, node and kernel; nothing is left behind.
  Result<CUgraph> build(uint32_t graph, LookupTime& time) const;

 private:
  Result<CUgraph> build(uint32_t graph, const std::string& where, LookupTime& time) const;
  Status fill(CUgraph into, uint32_t graph, const std::string& where, LookupTime& time) const;
  Status add_node(CUgraph into, uint32_t graph, uint32_t node, const std::string& where, LookupTime& time,
                  CUgraphNode& added) const;
  Status add_kernel(CUgraph into, uint32_t payload, std::span<const archive::PointerRecord* const> rebound,
                    LookupTime& time, CUgraphNode& added) const;
  Status set_launch_attributes(CUgraphNode node, const archive::KernelRecord& record,
                               std::span<const archive::PointerRecord* const> rebound) const;
  Status add_memcpy(CUgraph into, uint32_t payload, std::span<const archive::PointerRecord* const> rebound,
                    CUgraphNode& added) const;
  Status add_memset(CUgraph into, uint32_t payload, std::span<const archive::PointerRecord* const> rebound,
                    CUgraphNode& added) const;
  Status add_edges(CUgraph into, const archive::GraphRecord& record, std::span<const CUgraphNode> nodes) const;
  // Pointers of a node whose value is another one here.
  std::span<const archive::PointerRecord* const> rebound_of(uint32_t graph, uint32_t node) const;
  // What has to be added to the recorded value.
  Result<uint64_t> shift_of(const archive::PointerRecord& pointer) const;
  // `corrupt` unless a pointer of the list says which host range the operand lies in.
  Status check_host(std::span<const archive::PointerRecord* const> rebound, uint32_t operand) const;
  // Shifts `word` if a pointer of the list stands for the operand (archive::kPointerSource and the like).
  Status rebind_operand(std::span<const archive::PointerRecord* const> rebound, uint32_t operand, uint64_t& word) const;

  const Context c_;
  std::vector<const archive::PointerRecord*> rebound_;  // by graph, node
};

}  // namespace foundry::graph
