// Work goes into a capture or into a queue, and runs.
#include "csrc/sim/work.h"

#include "csrc/sim/capture.h"
#include "csrc/sim/event.h"
#include "csrc/sim/graph_memory.h"
#include "csrc/sim/library.h"
#include "csrc/sim/stream.h"

namespace foundry::sim {

CUgraphNodeType node_type(const Work& work) {
  struct Visitor {
    CUgraphNodeType operator()(const EmptyWork&) const { return CU_GRAPH_NODE_TYPE_EMPTY; }
    CUgraphNodeType operator()(const KernelWork&) const { return CU_GRAPH_NODE_TYPE_KERNEL; }
    CUgraphNodeType operator()(const CopyWork&) const { return CU_GRAPH_NODE_TYPE_MEMCPY; }
    CUgraphNodeType operator()(const SetWork&) const { return CU_GRAPH_NODE_TYPE_MEMSET; }
    CUgraphNodeType operator()(const HostWork&) const { return CU_GRAPH_NODE_TYPE_HOST; }
    CUgraphNodeType operator()(const EventRecordWork&) const { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
    CUgraphNodeType operator()(const EventWaitWork&) const { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
    CUgraphNodeType operator()(const ChildWork&) const { return CU_GRAPH_NODE_TYPE_GRAPH; }
    CUgraphNodeType operator()(const AllocWork&) const { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
    CUgraphNodeType operator()(const FreeWork&) const { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
    CUgraphNodeType operator()(const OpaqueWork& opaque) const { return opaque.type; }
  };
  return std::visit(Visitor{}, work);
}

CUresult submit(Stream& stream, Work work) {
  if (stream.capture != nullptr) return capture_work(stream, std::move(work));
  SIM_TRY(check_legacy(stream));
  // Contexts outlive their queues: the end of a context waits for its streams first.
  enqueue(stream, [work = std::make_shared<Work>(std::move(work)), context = stream.context] { run(*work, *context); });
  return CUDA_SUCCESS;
}

void run_host(const HostWork& host) {
  in_host_function() = true;
  host.function(host.data);
  in_host_function() = false;
}

void run(Work& work, Context& context) {
  if (context.sticky != CUDA_SUCCESS) return;  // a broken context runs nothing any more
  if (auto* kernel = std::get_if<KernelWork>(&work)) {
    run_kernel(*kernel, context);
  } else if (auto* copy = std::get_if<CopyWork>(&work)) {
    if (run_copy(*copy) != CUDA_SUCCESS) break_context(context, CUDA_ERROR_ILLEGAL_ADDRESS, "a queued copy failed");
  } else if (auto* set = std::get_if<SetWork>(&work)) {
    if (run_set(*set) != CUDA_SUCCESS) break_context(context, CUDA_ERROR_ILLEGAL_ADDRESS, "a queued memset failed");
  } else if (auto* host = std::get_if<HostWork>(&work)) {
    run_host(*host);
  } else if (auto* alloc = std::get_if<AllocWork>(&work)) {
    if (!map_graph_memory(alloc->params.dptr)) {
      break_context(context, CUDA_ERROR_OUT_OF_MEMORY, "a graph could not allocate its memory");
    }
  } else if (auto* free_work = std::get_if<FreeWork>(&work)) {
    unmap_graph_memory(free_work->address);
  }
}

}  // namespace foundry::sim
