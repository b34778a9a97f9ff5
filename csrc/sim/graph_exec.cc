// Executable graphs: instantiate, launch, update, destroy.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "csrc/sim/capture.h"
#include "csrc/sim/event.h"
#include "csrc/sim/exec.h"
#include "csrc/sim/graph_memory.h"
#include "csrc/sim/launch.h"
#include "csrc/sim/library.h"
#include "csrc/sim/lifetime.h"

namespace foundry::sim {

HandleTable<Exec, CUgraphExec, Kind::kExec>& execs() {
  static auto* table = new HandleTable<Exec, CUgraphExec, Kind::kExec>;
  return *table;
}

CUresult find_exec(CUgraphExec handle, std::shared_ptr<Exec>* exec) {
  *exec = execs().find(handle);
  if (*exec != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_VALUE, "executable graph %p was %s", static_cast<void*>(handle),
              execs().why_not(handle));
}

void release_executables_of(Context& context) {
  std::vector<CUgraphExec> mine;
  for (const auto& [value, exec] : execs().all()) {
    if (exec->context == &context) mine.push_back(exec->handle);
  }
  for (CUgraphExec handle : mine) execs().remove(handle);
}

Plan& own_plan(Exec& exec) {
  if (!is_done(exec.last)) exec.plan = std::make_shared<Plan>(*exec.plan);
  return *exec.plan;
}

namespace {

CUresult instantiate(CUgraphExec* out, CUgraph handle, cuuint64_t flags, CUgraphNode* culprit,
                     CUgraphInstantiateResult* why) {
  std::shared_ptr<Graph> graph;
  *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  *culprit = nullptr;
  SIM_TRY(find_graph(handle, &graph));
  Context* context;
  SIM_TRY(current_context(&context));
  constexpr cuuint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                               CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                               CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (out == nullptr || (flags & ~known) != 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "flags 0x%llx", static_cast<unsigned long long>(flags));
  }
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    return fail(CUDA_ERROR_NOT_SUPPORTED, "launches from the device are not simulated");
  }
  if (graph->owner != nullptr || graph->being_captured) {
    return fail(CUDA_ERROR_INVALID_VALUE, "the graph belongs to a node or is still being captured");
  }
  auto exec = std::make_shared<Exec>();
  SIM_TRY(make_plan(*graph, &exec->plan, culprit, why));
  exec->context = context;
  exec->flags = flags;
  exec->user_objects = graph->user_objects;
  exec->handle = *out = execs().add(exec);
  return CUDA_SUCCESS;
}

CUresult instantiate_with_log(CUgraphExec* out, CUgraph graph, CUgraphNode* culprit, char* buffer, std::size_t size) {
  CUgraphNode node;
  CUgraphInstantiateResult why;
  CUresult result = instantiate(out, graph, 0, &node, &why);
  if (culprit != nullptr) *culprit = node;
  if (buffer != nullptr && size > 0) buffer[0] = 0;
  return result;
}

// What a launch needs from under the lock: are the functions alive, which completions do the event steps have?
CUresult prepare(Plan& plan, bool auto_free, EventSteps* records, EventSteps* waits) {
  for (Plan::Step& step : plan.steps) {
    if (auto* kernel = std::get_if<KernelWork>(&step.work)) {
      if (kernel->function->module == nullptr) {
        return fail(CUDA_ERROR_INVALID_HANDLE, "the module of %s was unloaded", kernel->function->image.name.c_str());
      }
      kernel->function->loaded = true;
    } else if (auto* alloc = std::get_if<AllocWork>(&step.work)) {
      if (graph_memory_mapped(alloc->params.dptr) && !auto_free) {
        return fail(CUDA_ERROR_INVALID_VALUE, "memory of an earlier launch of the graph is not freed");
      }
    } else if (auto* wait = std::get_if<EventWaitWork>(&step.work)) {
      (*waits)[&step] = wait->event->completion;
    } else if (step.child != nullptr) {
      SIM_TRY(prepare(*step.child, auto_free, records, waits));
    }
  }
  for (Plan::Step& step : plan.steps) {
    if (auto* record = std::get_if<EventRecordWork>(&step.work)) {
      record->event->completion = (*records)[&step] = std::make_shared<Completion>();
      record->event->capture_id = 0;
    }
  }
  return CUDA_SUCCESS;
}

void free_left_over(const Plan& plan) {  // on a worker
  for (const Plan::Step& step : plan.steps) {
    if (step.child != nullptr) free_left_over(*step.child);
    const auto* alloc = std::get_if<AllocWork>(&step.work);
    if (alloc == nullptr) continue;
    bool mapped;
    {
      std::lock_guard lock(driver_mutex());
      mapped = graph_memory_mapped(alloc->params.dptr);
    }
    if (mapped) unmap_graph_memory(alloc->params.dptr);
  }
}

std::uint64_t next_seed() {
  static std::uint64_t value = [] {
    const char* text = std::getenv("FOUNDRY_SIM_SEED");
    return text == nullptr ? 1 : std::strtoull(text, nullptr, 0);
  }();
  return value++;
}

// Are the plans the same but for parameters?
CUresult compare(const Plan& now, const Plan& next, CUgraphExecUpdateResultInfo* info) {
  auto differ = [&](CUgraphExecUpdateResult result, std::size_t step, const char* what) {
    info->result = result;
    info->errorNode = step < next.steps.size() ? next.steps[step].source : nullptr;
    return fail(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "step %zu: %s", step, what);
  };
  if (now.steps.size() != next.steps.size()) {
    return differ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, next.steps.size(), "another number of nodes");
  }
  for (std::size_t i = 0; i < now.steps.size(); ++i) {
    const Plan::Step &a = now.steps[i], &b = next.steps[i];
    if (a.type != b.type) return differ(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, i, "another node type");
    bool edges =
        a.edges.size() == b.edges.size() && a.before == b.before &&
        (a.edges.empty() || std::memcmp(a.edges.data(), b.edges.data(), a.edges.size() * sizeof a.edges[0]) == 0);
    if (!edges) return differ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, i, "other edges");
    if (auto* kernel = std::get_if<KernelWork>(&a.work)) {
      if (kernel->function->context != std::get<KernelWork>(b.work).function->context) {
        return differ(CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, i, "another context");
      }
    }
    if (auto* copy = std::get_if<CopyWork>(&a.work)) {
      const CUDA_MEMCPY3D &p = copy->params, &q = std::get<CopyWork>(b.work).params;
      if (p.srcMemoryType != q.srcMemoryType || p.dstMemoryType != q.dstMemoryType) {
        return differ(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, i, "another memory type");
      }
    }
    if (a.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || a.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      return differ(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, i, "memory nodes cannot be updated");
    }
    if (a.child != nullptr) SIM_TRY(compare(*a.child, *b.child, info));
  }
  return CUDA_SUCCESS;
}

void keep_attributes(const Plan& from, Plan* to) {
  for (std::size_t i = 0; i < from.steps.size(); ++i) {
    if (auto* kernel = std::get_if<KernelWork>(&to->steps[i].work)) {
      kernel->attributes = std::get<KernelWork>(from.steps[i].work).attributes;
    }
    if (from.steps[i].child != nullptr) keep_attributes(*from.steps[i].child, to->steps[i].child.get());
  }
}

// The handles that clients know stay those of the graph that was instantiated.
void keep_sources(const Plan& from, Plan* to) {
  to->by_node = from.by_node;
  for (std::size_t i = 0; i < from.steps.size(); ++i) {
    to->steps[i].source = from.steps[i].source;
    to->steps[i].enabled = from.steps[i].enabled;
    if (from.steps[i].child != nullptr) keep_sources(*from.steps[i].child, to->steps[i].child.get());
  }
}

CUresult update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  *info = {};
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  std::shared_ptr<Exec> exec;
  SIM_TRY(find_exec(handle, &exec));
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(graph_handle, &graph));
  std::shared_ptr<Plan> next;
  CUgraphNode culprit;
  CUgraphInstantiateResult why;
  SIM_TRY(make_plan(*graph, &next, &culprit, &why));
  SIM_TRY(compare(*exec->plan, *next, info));
  if (trap_exec_update_attrs()) keep_attributes(*exec->plan, next.get());
  keep_sources(*exec->plan, next.get());
  exec->plan = std::move(next);
  info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuGraphInstantiate, (CUgraphExec * out, CUgraph graph, CUgraphNode* culprit, char* buffer, size_t size),
        (out, graph, culprit, buffer, size)) {
  return instantiate_with_log(out, graph, culprit, buffer, size);
}
SIM_API(cuGraphInstantiate_v2, (CUgraphExec * out, CUgraph graph, CUgraphNode* culprit, char* buffer, size_t size),
        (out, graph, culprit, buffer, size)) {
  return instantiate_with_log(out, graph, culprit, buffer, size);
}
SIM_API(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags),
        (out, graph, flags)) {
  CUgraphNode culprit;
  CUgraphInstantiateResult why;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "the upload flag needs cuGraphInstantiateWithParams");
  }
  return instantiate(out, graph, flags, &culprit, &why);
}
SIM_API_PTSZ(cuGraphInstantiateWithParams, (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params),
             (out, graph, params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if ((params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) SIM_TRY(find_stream(params->hUploadStream, &stream));
  return instantiate(out, graph, params->flags, &params->hErrNode_out, &params->result_out);
}

SIM_API(cuGraphExecGetFlags, (CUgraphExec handle, cuuint64_t* flags), (handle, flags)) {
  std::shared_ptr<Exec> exec;
  SIM_TRY(find_exec(handle, &exec));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags & ~static_cast<cuuint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuGraphUpload, (CUgraphExec handle, CUstream stream_handle), (handle, stream_handle)) {
  std::shared_ptr<Exec> exec;
  SIM_TRY(find_exec(handle, &exec));
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(stream_handle, &stream));
  return refuse_capturing(*stream, "cuGraphUpload");
}

SIM_API_PTSZ(cuGraphLaunch, (CUgraphExec handle, CUstream stream_handle), (handle, stream_handle)) {
  std::shared_ptr<Exec> exec;
  SIM_TRY(find_exec(handle, &exec));
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(stream_handle, &stream));
  SIM_TRY(refuse_capturing(*stream, "cuGraphLaunch"));
  SIM_TRY(check_legacy(*stream));
  if (stream->context != exec->context && strict()) {
    return fail(CUDA_ERROR_INVALID_VALUE, "the graph was instantiated in another context than the stream's");
  }
  bool auto_free = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  own_plan(*exec);  // a launch of its own state: completions are by step
  EventSteps records, waits;
  SIM_TRY(prepare(*exec->plan, auto_free, &records, &waits));
  std::vector<CompletionRef> before;
  if (!is_done(exec->last)) before.push_back(exec->last);
  exec->last = enqueue(
      *stream,
      [plan = exec->plan, context = exec->context, records = std::move(records), waits = std::move(waits), auto_free,
       seed = next_seed()] {
        if (auto_free) free_left_over(*plan);
        run_plan(*plan, *context, records, waits, seed);
      },
      std::move(before));
  return CUDA_SUCCESS;
}

// A launch in flight keeps what it needs.
SIM_API(cuGraphExecDestroy, (CUgraphExec handle), (handle)) {
  if (execs().remove(handle) != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_VALUE, "executable graph %p was %s", static_cast<void*>(handle),
              execs().why_not(handle));
}

SIM_API(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode* culprit, CUgraphExecUpdateResult* result),
        (exec, graph, culprit, result)) {
  CUgraphExecUpdateResultInfo info;
  CUresult updated = update(exec, graph, &info);
  if (culprit != nullptr) *culprit = info.errorNode;
  if (result != nullptr) *result = info.result;
  return updated;
}
SIM_API(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info),
        (exec, graph, info)) {
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return update(exec, graph, info);
}

}  // namespace foundry::sim
