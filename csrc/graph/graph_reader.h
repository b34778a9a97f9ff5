// Reads the nodes and edges of one captured CUgraph into records; child graphs are read the same way.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/driver/driver.h"
#include "csrc/graph/functions.h"
#include "csrc/graph/launch_attributes.h"
#include "csrc/graph/snapshot.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

// Events of all graphs: one record per CUevent.
class EventTable {
 public:
  explicit EventTable(GraphTables& tables) : tables_(tables) {}
  // Returns whether a graph that was read uses it.
  bool name(CUevent event, std::string name, uint32_t flags);
  uint32_t find(CUevent event);
  void commit();
  void roll_back();

 private:
  struct Named {
    std::string name;
    uint32_t flags = 0;
  };
  GraphTables& tables_;
  boost::unordered_flat_map<CUevent, Named> named_;
  boost::unordered_flat_map<CUevent, uint32_t> by_event_;
  std::vector<CUevent> events_;  // by index
  size_t committed_ = 0;
};

class GraphReader {
 public:
  GraphReader(const driver::Driver& driver, GraphTables& tables, FunctionTable& functions, LaunchAttributes& attributes,
              EventTable& events, const std::vector<NamedRange>& host_ranges)
      : driver_(driver),
        tables_(tables),
        functions_(functions),
        attributes_(attributes),
        events_(events),
        host_ranges_(host_ranges) {}

  // Appends the graph and what it refers to; returns its index. `where` names it in messages. After an error the
  // tables hold half of it: the caller rolls back.
  Result<uint32_t> read(CUgraph graph, const std::string& where, uint32_t depth);

 private:
  struct Shape {  // of the graph at hand
    std::vector<CUgraphNode> nodes;
    std::vector<uint32_t> types;  // CUgraphNodeType, or a value that this version's enum does not have
    std::vector<archive::EdgeRecord> edges;
  };

  Result<Shape> read_shape(CUgraph graph) const;
  Result<archive::NodeRecord> read_node(const Shape& shape, uint32_t index, const std::string& where, uint32_t depth);
  Result<uint32_t> read_kernel(CUgraphNode node);
  Status read_arguments(const CUDA_KERNEL_NODE_PARAMS& params, FunctionTable::Known function,
                        archive::KernelRecord& record);
  Result<uint32_t> read_memcpy(CUgraphNode node);
  // Address of one end of a copy; sets `host_flag` in `flags` where it is (registered) host memory.
  Result<uint64_t> memcpy_end(CUmemorytype type, const void* host, CUdeviceptr device, size_t lod, const char* verb,
                              uint32_t host_flag, uint32_t& flags) const;
  Status check_host_extents(const archive::MemcpyRecord& record) const;
  Result<uint32_t> read_memset(CUgraphNode node);
  Result<uint32_t> read_event(CUgraphNode node, uint32_t type);
  // "after kernel f(int), before kernel g(float*)": the nearest kernels along the edges.
  std::string neighbours(const Shape& shape, uint32_t index) const;

  const driver::Driver& driver_;
  GraphTables& tables_;
  FunctionTable& functions_;
  LaunchAttributes& attributes_;
  EventTable& events_;
  const std::vector<NamedRange>& host_ranges_;
};

}  // namespace foundry::graph
