// Reading and checking node parameters.
#include "csrc/sim/node_params.h"

#include <algorithm>
#include <cstring>

#include "csrc/sim/copy.h"
#include "csrc/sim/event.h"
#include "csrc/sim/graph_memory.h"
#include "csrc/sim/launch.h"
#include "csrc/sim/library.h"

namespace foundry::sim {

CUresult read_kernel(const CUDA_KERNEL_NODE_PARAMS& p, KernelWork* kernel) {
  Context* context;
  SIM_TRY(find_context(p.ctx, &context));
  // `func` may be a CUkernel in disguise; `kern` counts where `func` is null.
  CUfunction handle = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  if (handle == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "neither func nor kern is set");
  SIM_TRY(find_function(handle, context, &kernel->function));
  kernel->context = kernel->function->context->handle;
  kernel->grid[0] = p.gridDimX;
  kernel->grid[1] = p.gridDimY;
  kernel->grid[2] = p.gridDimZ;
  kernel->block[0] = p.blockDimX;
  kernel->block[1] = p.blockDimY;
  kernel->block[2] = p.blockDimZ;
  kernel->shared_bytes = p.sharedMemBytes;
  SIM_TRY(kernel->arguments.take(*kernel->function, p.kernelParams, p.extra));
  return check_launch(*kernel);
}

void show_kernel(KernelWork& kernel, CUDA_KERNEL_NODE_PARAMS* p) {
  *p = {};
  p->func = kernel.function->handle;
  p->kern = kernel.function->kernel != nullptr ? kernel.function->kernel->handle : nullptr;
  p->ctx = kernel.context;
  p->gridDimX = kernel.grid[0];
  p->gridDimY = kernel.grid[1];
  p->gridDimZ = kernel.grid[2];
  p->blockDimX = kernel.block[0];
  p->blockDimY = kernel.block[1];
  p->blockDimZ = kernel.block[2];
  p->sharedMemBytes = kernel.shared_bytes;
  p->kernelParams = kernel.arguments.params();
  p->extra = kernel.arguments.extra();
}

CUresult read_copy(const CUDA_MEMCPY3D& params, CUcontext handle, CopyWork* copy) {
  Context* context;
  SIM_TRY(find_context(handle, &context));
  if (params.WidthInBytes == 0 || params.Height == 0 || params.Depth == 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "a copy node of no bytes");
  }
  SIM_TRY(check_copy(params));
  copy->params = params;
  copy->context = context->handle;
  return CUDA_SUCCESS;
}

CUresult read_set(const CUDA_MEMSET_NODE_PARAMS& params, CUcontext handle, SetWork* set) {
  Context* context;
  SIM_TRY(find_context(handle, &context));
  if (params.width == 0 || params.height == 0) return fail(CUDA_ERROR_INVALID_VALUE, "a memset node of no bytes");
  SIM_TRY(check_set(params));
  set->params = params;
  set->context = context->handle;
  return CUDA_SUCCESS;
}

CUresult read_host(const CUDA_HOST_NODE_PARAMS& params, HostWork* host) {
  if (params.fn == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null function");
  host->function = params.fn;
  host->data = params.userData;
  return CUDA_SUCCESS;
}

CUresult read_event(CUevent handle, std::shared_ptr<Event>* event) { return find_event(handle, event); }

CUresult read_dependencies(const Graph& graph, const CUgraphNode* list, const CUgraphEdgeData* data, std::size_t count,
                           std::vector<Edge>* out) {
  if (list == nullptr && count != 0) return fail(CUDA_ERROR_INVALID_VALUE, "null dependencies");
  for (std::size_t i = 0; i < count; ++i) {
    std::shared_ptr<Node> node;
    SIM_TRY(find_node(list[i], &node));
    if (node->graph != &graph) return fail(CUDA_ERROR_INVALID_VALUE, "dependency %zu is in another graph", i);
    out->push_back({node.get(), data != nullptr ? data[i] : CUgraphEdgeData{}});
  }
  return CUDA_SUCCESS;
}

namespace {

template <class T>
void keep_array(OpaqueWork* work, T* pointer, std::size_t count) {
  const char* bytes = reinterpret_cast<const char*>(pointer);
  work->arrays.emplace_back(bytes, bytes + (pointer == nullptr ? 0 : count * sizeof(T)));
}

// Copies what the parameters point to; repoint() leads them into the copy.
CUresult read_opaque(const CUgraphNodeParams& p, OpaqueWork* work) {
  work->type = p.type;
  work->params = p;
  switch (p.type) {
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      keep_array(work, p.extSemSignal.extSemArray, p.extSemSignal.numExtSems);
      keep_array(work, p.extSemSignal.paramsArray, p.extSemSignal.numExtSems);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      keep_array(work, p.extSemWait.extSemArray, p.extSemWait.numExtSems);
      keep_array(work, p.extSemWait.paramsArray, p.extSemWait.numExtSems);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      if (p.memOp.count == 0 || p.memOp.count > 256) {
        return fail(CUDA_ERROR_INVALID_VALUE, "%u memory operations", p.memOp.count);
      }
      keep_array(work, p.memOp.paramArray, p.memOp.count);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return CUDA_SUCCESS;
    default:
      return fail(CUDA_ERROR_INVALID_VALUE, "node type %d", static_cast<int>(p.type));
  }
}

}  // namespace

void repoint(OpaqueWork& work) {
  CUgraphNodeParams& p = work.params;
  switch (work.type) {
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      p.extSemSignal.extSemArray = reinterpret_cast<CUexternalSemaphore*>(work.arrays[0].data());
      p.extSemSignal.paramsArray = reinterpret_cast<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS*>(work.arrays[1].data());
      break;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      p.extSemWait.extSemArray = reinterpret_cast<CUexternalSemaphore*>(work.arrays[0].data());
      p.extSemWait.paramsArray = reinterpret_cast<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS*>(work.arrays[1].data());
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      p.memOp.paramArray = reinterpret_cast<CUstreamBatchMemOpParams*>(work.arrays[0].data());
      break;
    default:
      break;
  }
}

CUresult read_any(CUgraphNodeParams& p, Work* work, std::vector<std::shared_ptr<Graph>>* bodies) {
  switch (p.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS params;
      static_assert(sizeof params == sizeof p.kernel);
      std::memcpy(&params, &p.kernel, sizeof params);
      return read_kernel(params, &work->emplace<KernelWork>());
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (p.memcpy.flags != 0) return fail(CUDA_ERROR_INVALID_VALUE, "flags %d", p.memcpy.flags);
      return read_copy(p.memcpy.copyParams, p.memcpy.copyCtx, &work->emplace<CopyWork>());
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS params;
      std::memcpy(&params, &p.memset, sizeof params);
      return read_set(params, p.memset.ctx, &work->emplace<SetWork>());
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return read_host({p.host.fn, p.host.userData}, &work->emplace<HostWork>());
    case CU_GRAPH_NODE_TYPE_EMPTY:
      work->emplace<EmptyWork>();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return read_event(p.eventWait.event, &work->emplace<EventWaitWork>().event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return read_event(p.eventRecord.event, &work->emplace<EventRecordWork>().event);
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      std::shared_ptr<Graph> graph;
      SIM_TRY(find_graph(p.graph.graph, &graph));
      if (graph->owner != nullptr || graph->being_captured)
        return fail(CUDA_ERROR_INVALID_VALUE, "the graph is in use");
      bool move = p.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
      for (const auto& node : graph->nodes) {
        bool memory = node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL || (memory && !move)) {
          return fail(CUDA_ERROR_NOT_SUPPORTED, "a child graph with conditional or memory nodes");
        }
      }
      work->emplace<ChildWork>().graph = move ? graph : clone_graph(*graph);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      AllocWork& alloc = work->emplace<AllocWork>();
      static_assert(sizeof alloc.params == sizeof p.alloc);
      std::memcpy(&alloc.params, &p.alloc, sizeof alloc.params);
      Context* context;
      SIM_TRY(current_context(&context));
      const CUmemPoolProps& pool = alloc.params.poolProps;
      if (pool.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || pool.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
          pool.location.id != context->device->ordinal) {
        return fail(CUDA_ERROR_INVALID_VALUE, "graph memory must be pinned memory of the current device");
      }
      if (p.alloc.accessDescCount != 0)
        alloc.access.assign(p.alloc.accessDescs, p.alloc.accessDescs + p.alloc.accessDescCount);
      SIM_TRY(reserve_graph_memory(*context, &alloc));
      p.alloc.dptr = alloc.params.dptr;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      auto it = ranges().find(p.free.dptr);
      if (it == ranges().end() || it->second.kind != MemoryKind::kGraph) {
        return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx does not come from an alloc node", p.free.dptr);
      }
      work->emplace<FreeWork>().address = p.free.dptr;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (bodies == nullptr || p.conditional.handle == 0 || p.conditional.size == 0) {
        return fail(CUDA_ERROR_INVALID_VALUE, "a conditional node needs a handle and bodies");
      }
      for (unsigned i = 0; i < p.conditional.size; ++i) bodies->push_back(make_graph());
      return read_opaque(p, &work->emplace<OpaqueWork>());
    default:
      return read_opaque(p, &work->emplace<OpaqueWork>());
  }
}

CUresult replace_work(Work* old_work, Work new_work) {
  if (auto* kernel = std::get_if<KernelWork>(&new_work)) {
    kernel->attributes = std::get<KernelWork>(*old_work).attributes;
    SIM_TRY(check_launch(*kernel));
  }
  *old_work = std::move(new_work);
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
