// From a graph to a plan, and running it.
#include <cstdlib>
#include <cstring>
#include <random>

#include "csrc/sim/event.h"
#include "csrc/sim/exec.h"
#include "csrc/sim/launch.h"

namespace foundry::sim {
namespace {

bool runnable(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return false;
    default:
      return true;
  }
}

// FOUNDRY_SIM_GRAPH_ORDER=creation runs the steps in the order in which they were added where the edges permit; else
// every launch takes another order that the edges permit, so that a lost edge shows.
bool creation_order() {
  static const bool value = [] {
    const char* text = std::getenv("FOUNDRY_SIM_GRAPH_ORDER");
    return text != nullptr && std::strcmp(text, "creation") == 0;
  }();
  return value;
}

bool has_cycle(const Plan& plan) {
  std::vector<std::size_t> waiting(plan.steps.size()), ready;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    waiting[i] = plan.steps[i].before.size();
    if (waiting[i] == 0) ready.push_back(i);
  }
  std::size_t seen = 0;
  while (!ready.empty()) {
    std::size_t at = ready.back();
    ready.pop_back();
    ++seen;
    for (std::size_t next : plan.steps[at].after) {
      if (--waiting[next] == 0) ready.push_back(next);
    }
  }
  return seen != plan.steps.size();
}

}  // namespace

CUresult make_plan(const Graph& graph, std::shared_ptr<Plan>* out, CUgraphNode* culprit,
                   CUgraphInstantiateResult* why) {
  auto plan = std::make_shared<Plan>();
  for (const auto& node : graph.nodes) plan->by_node.emplace(node->handle, plan->by_node.size());
  plan->steps.reserve(graph.nodes.size());
  for (const auto& node : graph.nodes) {
    *culprit = node->handle;
    if (!runnable(node->type)) {
      *why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
      return fail(CUDA_ERROR_NOT_SUPPORTED, "nodes of type %d are not run by the simulated driver",
                  static_cast<int>(node->type));
    }
    *why = CUDA_GRAPH_INSTANTIATE_ERROR;
    Plan::Step& step = plan->steps.emplace_back();
    step.source = node->handle;
    step.type = node->type;
    step.work = node->work;
    // The limit on dynamic shared memory is a matter of adding a node; clusters are looked at again.
    if (auto* kernel = std::get_if<KernelWork>(&step.work)) {
      CUresult checked = check_launch(*kernel);
      if (checked == CUDA_ERROR_INVALID_CLUSTER_SIZE || checked == CUDA_ERROR_INVALID_HANDLE) return checked;
    }
    for (const Edge& edge : node->dependencies) {
      step.before.push_back(plan->by_node.at(edge.other->handle));
      step.edges.push_back(edge.data);
    }
    for (const Edge& edge : node->dependents) step.after.push_back(plan->by_node.at(edge.other->handle));
    if (auto* child = std::get_if<ChildWork>(&node->work)) {
      SIM_TRY(make_plan(*child->graph, &step.child, culprit, why));
    }
  }
  *culprit = nullptr;
  if (has_cycle(*plan)) {
    *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    return fail(CUDA_ERROR_INVALID_VALUE, "the graph has a cycle");
  }
  *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  *out = std::move(plan);
  return CUDA_SUCCESS;
}

void run_plan(Plan& plan, Context& context, const EventSteps& records, const EventSteps& waits, std::uint64_t seed) {
  std::vector<std::size_t> waiting(plan.steps.size()), ready;
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    waiting[i] = plan.steps[i].before.size();
    if (waiting[i] == 0) ready.push_back(i);
  }
  std::mt19937_64 random(seed);
  while (!ready.empty()) {
    std::size_t pick = ready.size() - 1;
    if (creation_order()) {
      pick = static_cast<std::size_t>(std::min_element(ready.begin(), ready.end()) - ready.begin());
    } else if (ready.size() > 1) {
      pick = random() % ready.size();
    }
    std::size_t at = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    Plan::Step& step = plan.steps[at];
    if (step.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      finish(records.at(&step));
    } else if (step.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
      wait_for(waits.at(&step));
    } else if (step.child != nullptr) {
      run_plan(*step.child, context, records, waits, random());
    } else if (step.enabled) {
      run(step.work, context);
    }
    for (std::size_t next : step.after) {
      if (--waiting[next] == 0) ready.push_back(next);
    }
  }
}

}  // namespace foundry::sim
