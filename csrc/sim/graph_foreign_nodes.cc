// Node types that can be made and read but not run: external semaphores, batched memory operations, conditionals.
#include <cstring>

#include "csrc/sim/context.h"
#include "csrc/sim/node_params.h"

namespace foundry::sim {
namespace {

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* deps, std::size_t count, CUgraphNodeParams params) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  if (out == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null result");
  std::vector<Edge> dependencies;
  SIM_TRY(read_dependencies(*graph, deps, nullptr, count, &dependencies));
  Work work;
  SIM_TRY(read_any(params, &work, nullptr));
  Node* node;
  SIM_TRY(add_node(*graph, params.type, std::move(work), dependencies, &node));
  *out = node->handle;
  return CUDA_SUCCESS;
}

CUresult get(CUgraphNode handle, CUgraphNodeType type, CUgraphNodeParams** params) {
  std::shared_ptr<Node> node;
  SIM_TRY(find_node(handle, &node));
  if (node->type != type) {
    return fail(CUDA_ERROR_INVALID_VALUE, "the node is of type %d, not %d", static_cast<int>(node->type),
                static_cast<int>(type));
  }
  OpaqueWork& opaque = std::get<OpaqueWork>(node->work);
  repoint(opaque);
  *params = &opaque.params;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuGraphAddExternalSemaphoresSignalNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count,
         const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params),
        (out, graph, deps, count, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams any = {};
  any.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
  std::memcpy(&any.extSemSignal, params, sizeof *params);
  return add(out, graph, deps, count, any);
}
SIM_API(cuGraphExternalSemaphoresSignalNodeGetParams, (CUgraphNode node, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params),
        (node, params)) {
  CUgraphNodeParams* any;
  SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, &any));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(params, &any->extSemSignal, sizeof *params);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddExternalSemaphoresWaitNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count,
         const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params),
        (out, graph, deps, count, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams any = {};
  any.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
  std::memcpy(&any.extSemWait, params, sizeof *params);
  return add(out, graph, deps, count, any);
}
SIM_API(cuGraphExternalSemaphoresWaitNodeGetParams, (CUgraphNode node, CUDA_EXT_SEM_WAIT_NODE_PARAMS* params),
        (node, params)) {
  CUgraphNodeParams* any;
  SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, &any));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(params, &any->extSemWait, sizeof *params);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddBatchMemOpNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t count,
         const CUDA_BATCH_MEM_OP_NODE_PARAMS* params),
        (out, graph, deps, count, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams any = {};
  any.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  std::memcpy(&any.memOp, params, sizeof *params);
  return add(out, graph, deps, count, any);
}
SIM_API(cuGraphBatchMemOpNodeGetParams, (CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* params), (node, params)) {
  CUgraphNodeParams* any;
  SIM_TRY(get(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &any));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(params, &any->memOp, sizeof *params);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphConditionalHandleCreate,
        (CUgraphConditionalHandle * out, CUgraph handle, CUcontext context_handle, unsigned value, unsigned flags),
        (out, handle, context_handle, value, flags)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  Context* context;
  SIM_TRY(find_context(context_handle, &context));
  if (out == nullptr || (flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
    return fail(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
  static CUgraphConditionalHandle last = 0;
  *out = ++last;
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
