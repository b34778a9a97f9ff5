#include "csrc/graph/launch_attributes.h"

#include <cstring>

#include "csrc/base/text.h"
#include "csrc/graph/node_attributes.h"

namespace foundry::graph {
namespace {

// Attributes newer than the driver, or of other devices.
bool means_absent(CUresult code) { return code == CUDA_ERROR_INVALID_VALUE || code == CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace

Status LaunchAttributes::read(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS& params, bool clustered,
                              archive::KernelRecord& record) {
  const Defaults& defaults = defaults_of(record.function, params);
  record.first_attribute = static_cast<uint32_t>(tables_.launch_attributes.size());
  const auto rows = launch_attributes();
  for (size_t i = 0; i < rows.size(); ++i) {
    const LaunchAttributeInfo& row = rows[i];
    if (row.handling == AttributeHandling::ignored || defaults[i].absent) continue;
    if (row.handling == AttributeHandling::with_cluster && !clustered) continue;
    CUlaunchAttributeValue value;
    std::memset(&value, 0, sizeof value);
    const CUresult code = driver_.cuGraphKernelNodeGetAttribute(node, row.id, &value);
    if (means_absent(code)) continue;
    if (code != CUDA_SUCCESS) {
      return driver_.error(code, "cuGraphKernelNodeGetAttribute").within(format("launch attribute \"%s\"", row.words));
    }
    if (row.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) clustered = clustered || value.clusterDim.x != 0;
    if (row.equal(value, defaults[i].value)) continue;
    if (row.handling == AttributeHandling::refused) {
      return Error{ErrorKind::unsupported, 0,
                   format("it has the launch attribute \"%s\", which cannot be restored", row.words)};
    }
    archive::LaunchAttributeRecord attribute{};
    attribute.id = static_cast<uint32_t>(row.id);
    static_assert(sizeof attribute.value == sizeof value);
    std::memcpy(attribute.value, &value, row.bytes);
    tables_.launch_attributes.push_back(attribute);
  }
  record.attribute_count = static_cast<uint32_t>(tables_.launch_attributes.size()) - record.first_attribute;
  return success();
}

const LaunchAttributes::Defaults& LaunchAttributes::defaults_of(uint32_t function,
                                                                const CUDA_KERNEL_NODE_PARAMS& params) {
  if (function >= defaults_.size()) defaults_.resize(function + 1);
  Defaults& defaults = defaults_[function];
  if (!defaults.empty()) return defaults;

  CUgraph scratch = nullptr;
  CUgraphNode node = nullptr;
  const bool added = driver_.cuGraphCreate(&scratch, 0) == CUDA_SUCCESS &&
                     driver_.cuGraphAddKernelNode(&node, scratch, nullptr, 0, &params) == CUDA_SUCCESS;
  for (const LaunchAttributeInfo& row : launch_attributes()) {
    Default initial{row.initial, false};
    if (added && row.handling != AttributeHandling::ignored) {
      CUlaunchAttributeValue value;
      std::memset(&value, 0, sizeof value);
      const CUresult code = driver_.cuGraphKernelNodeGetAttribute(node, row.id, &value);
      if (code == CUDA_SUCCESS) initial.value = value;
      // What needs a cluster may be unknown only to a node without one.
      initial.absent = means_absent(code) && row.handling != AttributeHandling::with_cluster;
    }
    defaults.push_back(initial);
  }
  if (scratch != nullptr) driver_.cuGraphDestroy(scratch);
  return defaults;
}

void LaunchAttributes::roll_back() {
  if (defaults_.size() > tables_.functions.size()) defaults_.resize(tables_.functions.size());
}

}  // namespace foundry::graph
