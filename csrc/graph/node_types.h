// The one table of graph node types: what Foundry does with each, and the words for it in messages.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace foundry::graph {

enum class NodeHandling : uint32_t {
  restored,  // kept in the archive and rebuilt on LOAD
  refused,   // fails the snapshot of its graph
};

// X(CUgraphNodeType suffix, words, NodeHandling, what a refusal advises)
#define FOUNDRY_NODE_TYPES(X)                                                                                     \
  X(KERNEL, "kernel", restored, "")                                                                               \
  X(MEMCPY, "memcpy", restored, "")                                                                               \
  X(MEMSET, "memset", restored, "")                                                                               \
  X(HOST, "host function", refused, "run the host code before or after the replay instead of inside the capture") \
  X(GRAPH, "child graph", restored, "")                                                                           \
  X(EMPTY, "empty", restored, "")                                                                                 \
  X(WAIT_EVENT, "event wait", restored, "")                                                                       \
  X(EVENT_RECORD, "event record", restored, "")                                                                   \
  X(EXT_SEMAS_SIGNAL, "external semaphore signal", refused, "signal external semaphores outside the capture")     \
  X(EXT_SEMAS_WAIT, "external semaphore wait", refused, "wait for external semaphores outside the capture")       \
  X(MEM_ALLOC, "memory allocation", refused, "allocate with cuMemAllocAsync while the stream captures")           \
  X(MEM_FREE, "memory free", refused, "allocate with cuMemAllocAsync while the stream captures")                  \
  X(BATCH_MEM_OP, "batch memory operation", refused, "leave stream memory operations out of the capture")         \
  X(CONDITIONAL, "conditional", refused, "decide on the host which graph to replay")

struct NodeTypeInfo {
  CUgraphNodeType type;
  const char* words;
  NodeHandling handling;
  const char* advice;
};

// Null for a type this version does not know.
inline const NodeTypeInfo* node_type_info(uint32_t type) {
  static constexpr NodeTypeInfo kTable[] = {
#define FOUNDRY_NODE_TYPE_ROW(suffix, words, handling, advice) \
  {CU_GRAPH_NODE_TYPE_##suffix, words, NodeHandling::handling, advice},
      FOUNDRY_NODE_TYPES(FOUNDRY_NODE_TYPE_ROW)
#undef FOUNDRY_NODE_TYPE_ROW
  };
  for (const NodeTypeInfo& row : kTable) {
    if (static_cast<uint32_t>(row.type) == type) return &row;
  }
  return nullptr;
}

}  // namespace foundry::graph
