// The driver's rules for launches, shared by streams and graph nodes.
#pragma once

#include "csrc/sim/work.h"

namespace foundry::sim {

// Geometry, dynamic shared memory, clusters, cooperative size.
CUresult check_launch(const KernelWork& kernel);
// Can a kernel node carry the attribute, with this value?
CUresult check_node_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue& value);
bool is_node_attribute(CUlaunchAttributeID id);
CUlaunchAttributeValue attribute_of(const KernelWork& kernel, CUlaunchAttributeID id);

}  // namespace foundry::sim
