// Changing single nodes of executable graphs.
#include <cstring>

#include "csrc/sim/event.h"
#include "csrc/sim/exec.h"
#include "csrc/sim/node_params.h"

namespace foundry::sim {
namespace {

CUresult find_step(CUgraphExec handle, CUgraphNode node, std::shared_ptr<Exec>* exec, Plan::Step** step) {
  SIM_TRY(find_exec(handle, exec));
  auto it = (*exec)->plan->by_node.find(node);
  if (it == (*exec)->plan->by_node.end()) {
    return fail(CUDA_ERROR_INVALID_VALUE, "node %p is not of the graph that was instantiated",
                static_cast<void*>(node));
  }
  *step = &own_plan(**exec).steps[it->second];
  return CUDA_SUCCESS;
}

template <class T, class Read>
CUresult change(CUgraphExec handle, CUgraphNode node, Read read) {
  std::shared_ptr<Exec> exec;
  Plan::Step* step;
  SIM_TRY(find_step(handle, node, &exec, &step));
  if (!std::holds_alternative<T>(step->work)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "the node is of type %d", static_cast<int>(step->type));
  }
  T fresh;
  SIM_TRY(read(&fresh));
  return replace_work(&step->work, std::move(fresh));
}

CUresult change_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS& params) {
  return change<KernelWork>(exec, node, [&](KernelWork* kernel) { return read_kernel(params, kernel); });
}

}  // namespace

SIM_API(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params),
        (exec, node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide = {};
  std::memcpy(&wide, params, sizeof *params);
  return change_kernel(exec, node, wide);
}
SIM_API(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params),
        (exec, node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_kernel(exec, node, *params);
}
SIM_API(cuGraphExecMemcpyNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params, CUcontext context),
        (exec, node, params, context)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change<CopyWork>(exec, node, [&](CopyWork* copy) { return read_copy(*params, context, copy); });
}
SIM_API(cuGraphExecMemsetNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context),
        (exec, node, params, context)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change<SetWork>(exec, node, [&](SetWork* set) { return read_set(*params, context, set); });
}
SIM_API(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params),
        (exec, node, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change<HostWork>(exec, node, [&](HostWork* host) { return read_host(*params, host); });
}
SIM_API(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event)) {
  return change<EventRecordWork>(exec, node, [&](EventRecordWork* work) { return read_event(event, &work->event); });
}
SIM_API(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event)) {
  return change<EventWaitWork>(exec, node, [&](EventWaitWork* work) { return read_event(event, &work->event); });
}

SIM_API(cuGraphExecNodeSetParams, (CUgraphExec handle, CUgraphNode node, CUgraphNodeParams* params),
        (handle, node, params)) {
  std::shared_ptr<Exec> exec;
  Plan::Step* step;
  SIM_TRY(find_step(handle, node, &exec, &step));
  if (params == nullptr || params->type != step->type) return fail(CUDA_ERROR_INVALID_VALUE, "another node type");
  if (step->child != nullptr || step->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
      step->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return fail(CUDA_ERROR_NOT_SUPPORTED, "nodes of type %d cannot be changed", static_cast<int>(step->type));
  }
  Work work;
  SIM_TRY(read_any(*params, &work, nullptr));
  return replace_work(&step->work, std::move(work));
}

static CUresult check_switchable(const Plan::Step& step) {
  if (step.type == CU_GRAPH_NODE_TYPE_KERNEL || step.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
      step.type == CU_GRAPH_NODE_TYPE_MEMSET) {
    return CUDA_SUCCESS;
  }
  return fail(CUDA_ERROR_INVALID_VALUE, "nodes of type %d cannot be switched off", static_cast<int>(step.type));
}

SIM_API(cuGraphNodeSetEnabled, (CUgraphExec handle, CUgraphNode node, unsigned enabled), (handle, node, enabled)) {
  std::shared_ptr<Exec> exec;
  Plan::Step* step;
  SIM_TRY(find_step(handle, node, &exec, &step));
  SIM_TRY(check_switchable(*step));
  step->enabled = enabled != 0;
  return CUDA_SUCCESS;
}
SIM_API(cuGraphNodeGetEnabled, (CUgraphExec handle, CUgraphNode node, unsigned* enabled), (handle, node, enabled)) {
  std::shared_ptr<Exec> exec;
  Plan::Step* step;
  SIM_TRY(find_step(handle, node, &exec, &step));
  SIM_TRY(check_switchable(*step));
  if (enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *enabled = step->enabled;
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
