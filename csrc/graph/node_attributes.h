// The one table of kernel launch attributes and the one of function attributes that graphs depend on.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <span>

namespace foundry::graph {

enum class AttributeHandling : uint32_t {
  restored,      // stored where it differs from the default, set on the rebuilt node
  with_cluster,  // the same, but only of nodes that launch in clusters: elsewhere it means nothing, though captured and
                 // added nodes report different values
  refused,       // a node that has it fails the snapshot of its graph
  ignored,       // not an attribute of graph nodes: its effect is elsewhere (edges, streams) or none
};

// X(CU_LAUNCH_ATTRIBUTE_ suffix, words, AttributeHandling, bytes, default)
//   bytes    how much of the value means something; the rest is stored as zero
//   default  the value's first 32-bit word on a new node, zeros behind it (driver 580 on an H200). A new node of the
//            function at hand decides where one can be asked: defaults depend on driver, device and function.
#define FOUNDRY_LAUNCH_ATTRIBUTES(X)                                                       \
  X(ACCESS_POLICY_WINDOW, "access-policy window", restored, 32, 0)                         \
  X(COOPERATIVE, "cooperative launch", restored, 4, 0)                                     \
  X(SYNCHRONIZATION_POLICY, "synchronization policy", ignored, 4, 0)                       \
  X(CLUSTER_DIMENSION, "cluster dimension", restored, 12, 0)                               \
  X(CLUSTER_SCHEDULING_POLICY_PREFERENCE, "cluster scheduling policy", with_cluster, 4, 1) \
  X(PROGRAMMATIC_STREAM_SERIALIZATION, "programmatic stream serialization", ignored, 4, 0) \
  X(PROGRAMMATIC_EVENT, "programmatic event", ignored, 16, 0)                              \
  X(PRIORITY, "priority", restored, 4, 0)                                                  \
  X(MEM_SYNC_DOMAIN_MAP, "memory-sync domain map", restored, 2, 0x0100)                    \
  X(MEM_SYNC_DOMAIN, "memory-sync domain", restored, 4, 0)                                 \
  X(PREFERRED_CLUSTER_DIMENSION, "preferred cluster dimension", with_cluster, 12, 0)       \
  X(LAUNCH_COMPLETION_EVENT, "launch completion event", ignored, 12, 0)                    \
  X(DEVICE_UPDATABLE_KERNEL_NODE, "device-updatable node", refused, 4, 0)                  \
  X(PREFERRED_SHARED_MEMORY_CARVEOUT, "shared-memory carveout", restored, 4, 0)            \
  X(NVLINK_UTIL_CENTRIC_SCHEDULING, "NVLink-centric scheduling", restored, 4, 0)

struct LaunchAttributeInfo {
  CUlaunchAttributeID id;
  const char* words;
  AttributeHandling handling;
  uint32_t bytes;
  CUlaunchAttributeValue initial;

  // Whether two values mean the same.
  bool equal(const CUlaunchAttributeValue& a, const CUlaunchAttributeValue& b) const {
    // A window of no bytes is no window, whatever its other fields say.
    if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && a.accessPolicyWindow.num_bytes == 0) {
      return b.accessPolicyWindow.num_bytes == 0;
    }
    return std::memcmp(&a, &b, bytes) == 0;
  }
};

std::span<const LaunchAttributeInfo> launch_attributes();
// Null for an attribute this version does not know.
const LaunchAttributeInfo* launch_attribute_info(uint32_t id);

enum class FunctionAttributeRule : uint32_t {
  at_least,  // the largest value that any node or the function asks for
  exact,     // the function's value
};

// X(CU_FUNC_ATTRIBUTE_ suffix, words, FunctionAttributeRule, default value)
// All of them can be set on a CUkernel and on a per-context CUfunction. The maximum of dynamic shared memory has no
// constant default: it is what remains of the 48 KiB after the kernel's static shared memory.
#define FOUNDRY_FUNCTION_ATTRIBUTES(X)                                                                \
  X(MAX_DYNAMIC_SHARED_SIZE_BYTES, "maximum dynamic shared memory", at_least, kDefaultDynamicShared)  \
  X(PREFERRED_SHARED_MEMORY_CARVEOUT, "shared-memory carveout", exact, CU_SHAREDMEM_CARVEOUT_DEFAULT) \
  X(REQUIRED_CLUSTER_WIDTH, "required cluster width", exact, 0)                                       \
  X(REQUIRED_CLUSTER_HEIGHT, "required cluster height", exact, 0)                                     \
  X(REQUIRED_CLUSTER_DEPTH, "required cluster depth", exact, 0)                                       \
  X(NON_PORTABLE_CLUSTER_SIZE_ALLOWED, "non-portable cluster size", exact, 0)                         \
  X(CLUSTER_SCHEDULING_POLICY_PREFERENCE, "cluster scheduling policy", exact, CU_CLUSTER_SCHEDULING_POLICY_DEFAULT)

// Marks "48 KiB less static shared memory" in the table above.
inline constexpr int kDefaultDynamicShared = -1;
// What every architecture gives a block without opting in, static and dynamic together.
inline constexpr int kSharedWithoutOptIn = 48 * 1024;

struct FunctionAttributeInfo {
  CUfunction_attribute id;
  const char* words;
  FunctionAttributeRule rule;
  int initial;
};

std::span<const FunctionAttributeInfo> function_attributes();
// Null for an attribute that Foundry does not restore.
const FunctionAttributeInfo* function_attribute_info(int32_t id);

}  // namespace foundry::graph
