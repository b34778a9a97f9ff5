// Executable graphs.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/sim/graph.h"
#include "csrc/sim/stream.h"

namespace foundry::sim {

// What a launch runs: the nodes at the time of instantiation, copied. Launches in flight share it; whoever changes it
// while it is shared makes a copy first.
struct Plan {
  struct Step {
    CUgraphNode source = nullptr;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Work work;
    bool enabled = true;
    std::vector<std::size_t> before, after;
    std::vector<CUgraphEdgeData> edges;  // of `before`
    std::shared_ptr<Plan> child;
  };
  std::vector<Step> steps;  // in order of creation
  std::unordered_map<CUgraphNode, std::size_t> by_node;
};

struct Exec {
  CUgraphExec handle = nullptr;
  Context* context = nullptr;
  cuuint64_t flags = 0;
  std::shared_ptr<Plan> plan;
  std::map<std::shared_ptr<UserObject>, unsigned> user_objects;
  CompletionRef last;  // launches of one executable graph do not overlap
};

HandleTable<Exec, CUgraphExec, Kind::kExec>& execs();
CUresult find_exec(CUgraphExec handle, std::shared_ptr<Exec>* exec);
Plan& own_plan(Exec& exec);

// Everything that instantiation refuses; `node` is the culprit.
CUresult make_plan(const Graph& graph, std::shared_ptr<Plan>* plan, CUgraphNode* node, CUgraphInstantiateResult* why);

// Runs on a worker. Completions of event record steps are in `records`, by step, those of wait steps in `waits`.
using EventSteps = std::unordered_map<const Plan::Step*, CompletionRef>;
void run_plan(Plan& plan, Context& context, const EventSteps& records, const EventSteps& waits, std::uint64_t seed);

}  // namespace foundry::sim
