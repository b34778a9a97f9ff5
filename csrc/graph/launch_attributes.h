// SAVE: the launch attributes of kernel nodes, as far as they differ from those of a new node of the same function.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

class LaunchAttributes {
 public:
  LaunchAttributes(const driver::Driver& driver, GraphTables& tables) : driver_(driver), tables_(tables) {}

  // Appends the node's attributes and notes them in its record. `params` are the node's own; `clustered`: the function
  // launches in clusters without being asked to.
  Status read(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS& params, bool clustered, archive::KernelRecord& record);
  // Forgets functions that the tables no longer have.
  void roll_back();

 private:
  struct Default {
    CUlaunchAttributeValue value;
    bool absent;  // the driver does not know the attribute, and takes 2 us to say so
  };
  using Defaults = std::vector<Default>;  // by row of launch_attributes()

  // What LOAD gets by adding a node of this function and setting nothing.
  const Defaults& defaults_of(uint32_t function, const CUDA_KERNEL_NODE_PARAMS& params);

  const driver::Driver& driver_;
  GraphTables& tables_;
  std::vector<Defaults> defaults_;  // by function; empty where not asked yet
};

}  // namespace foundry::graph
