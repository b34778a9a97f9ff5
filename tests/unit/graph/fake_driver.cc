#include "tests/unit/graph/fake_driver.h"

#include <algorithm>
#include <cstring>

#include "csrc/graph/node_attributes.h"

namespace foundry::graph::testing {
namespace {

FakeDriver* active = nullptr;
thread_local CUcontext current = nullptr;

template <class T, class H>
T* as(H handle) {
  return reinterpret_cast<T*>(handle);
}
template <class H>
bool has_tag(H handle, Tag tag) {
  return handle != nullptr && reinterpret_cast<FakeObject*>(handle)->tag == tag;
}

#define ENTER(name, context)                                              \
  if (const CUresult fault = FakeDriver::now().enter(#name, context); fault != CUDA_SUCCESS) return fault

CUresult CUDAAPI get_name(CUresult, const char** text) {
  *text = "CUDA_ERROR_OF_FAKE";
  return CUDA_SUCCESS;
}
CUresult CUDAAPI get_current(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI set_current(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI get_device(CUdevice* device) {
  ENTER(cuCtxGetDevice, true);
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI exchange_mode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(now, *mode);
  return CUDA_SUCCESS;
}

// ---- images

CUresult CUDAAPI library_load(CUlibrary* out, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption* options,
                              void** values, unsigned count) {
  ENTER(cuLibraryLoadData, true);
  FakeDriver& fake = FakeDriver::now();
  const auto spec = fake.images.find(static_cast<const char*>(code));
  if (spec == fake.images.end()) return CUDA_ERROR_INVALID_IMAGE;
  fake.note("load " + spec->first);
  auto* library = new FakeLibrary;
  library->image = spec->first;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) library->preserved = values[i] != nullptr;
  }
  for (const auto& [name, function] : spec->second.functions) {
    auto kernel = std::make_unique<FakeKernel>();
    kernel->name = name;
    kernel->spec = function;
    kernel->library = library;
    kernel->attributes = function.attributes;
    kernel->function.kernel = kernel.get();
    kernel->function.attributes = function.attributes;
    library->kernels.emplace(name, std::move(kernel));
  }
  library->globals = spec->second.globals;
  ++fake.live_libraries;
  *out = as<std::remove_pointer_t<CUlibrary>>(library);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI library_unload(CUlibrary library) {
  ENTER(cuLibraryUnload, true);
  FakeDriver::now().note("unload");
  --FakeDriver::now().live_libraries;
  delete as<FakeLibrary>(library);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI library_kernel(CUkernel* out, CUlibrary library, const char* name) {
  ENTER(cuLibraryGetKernel, true);
  auto& kernels = as<FakeLibrary>(library)->kernels;
  const auto found = kernels.find(name);
  if (found == kernels.end()) return CUDA_ERROR_NOT_FOUND;
  FakeDriver::now().note(std::string("get ") + name);
  *out = as<std::remove_pointer_t<CUkernel>>(found->second.get());
  return CUDA_SUCCESS;
}
CUresult CUDAAPI library_global(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  ENTER(cuLibraryGetGlobal, true);
  auto& globals = as<FakeLibrary>(library)->globals;
  const auto found = globals.find(name);
  if (found == globals.end()) return CUDA_ERROR_NOT_FOUND;
  *address = reinterpret_cast<CUdeviceptr>(found->second.data());
  *bytes = found->second.size();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_function(CUfunction* out, CUkernel kernel) {
  ENTER(cuKernelGetFunction, true);
  *out = as<std::remove_pointer_t<CUfunction>>(&as<FakeKernel>(kernel)->function);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_library(CUlibrary* out, CUkernel kernel) {
  ENTER(cuKernelGetLibrary, true);
  if (!has_tag(kernel, Tag::kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *out = as<std::remove_pointer_t<CUlibrary>>(as<FakeKernel>(kernel)->library);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_name(const char** name, CUkernel kernel) {
  if (!has_tag(kernel, Tag::kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *name = as<FakeKernel>(kernel)->name.c_str();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI function_name(const char** name, CUfunction function) {
  if (!has_tag(function, Tag::function)) return CUDA_ERROR_INVALID_HANDLE;
  *name = as<FakeFunction>(function)->kernel->name.c_str();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI function_module(CUmodule* module, CUfunction function) {
  if (!has_tag(function, Tag::function)) return CUDA_ERROR_INVALID_HANDLE;
  *module = as<std::remove_pointer_t<CUmodule>>(&as<FakeFunction>(function)->kernel->library->module);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI module_function(CUfunction*, CUmodule, const char*) { return CUDA_ERROR_NOT_FOUND; }
CUresult param_info(const FakeKernel& kernel, size_t index, size_t* offset, size_t* bytes) {
  const auto& failures = FakeDriver::now().param_info_failures;
  if (const auto failure = failures.find(kernel.name); failure != failures.end()) return failure->second;
  if (index >= kernel.spec.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel.spec.params[index].offset;
  *bytes = kernel.spec.params[index].bytes;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_param_info(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
  return param_info(*as<FakeKernel>(kernel), index, offset, bytes);
}
CUresult CUDAAPI function_param_info(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  return param_info(*as<FakeFunction>(function)->kernel, index, offset, bytes);
}
int attribute_of(const FakeKernel& kernel, const std::map<int, int>& set, int id) {
  if (const auto found = set.find(id); found != set.end()) return found->second;
  if (id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    const auto fixed = kernel.spec.attributes.find(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    return kSharedWithoutOptIn - (fixed == kernel.spec.attributes.end() ? 0 : fixed->second);
  }
  return id == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ? -1 : 0;
}
CUresult CUDAAPI kernel_get_attribute(int* value, CUfunction_attribute id, CUkernel kernel, CUdevice) {
  *value = attribute_of(*as<FakeKernel>(kernel), as<FakeKernel>(kernel)->attributes, id);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI function_get_attribute(int* value, CUfunction_attribute id, CUfunction function) {
  ENTER(cuFuncGetAttribute, true);
  *value = attribute_of(*as<FakeFunction>(function)->kernel, as<FakeFunction>(function)->attributes, id);
  return CUDA_SUCCESS;
}
bool fixed_by_compiler(const FakeKernel& kernel, int id) {
  return id >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH && id <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH &&
         kernel.spec.attributes.count(id) != 0;
}
CUresult CUDAAPI kernel_set_attribute(CUfunction_attribute id, int value, CUkernel kernel, CUdevice) {
  ENTER(cuKernelSetAttribute, true);
  if (fixed_by_compiler(*as<FakeKernel>(kernel), id)) return CUDA_ERROR_NOT_PERMITTED;
  as<FakeKernel>(kernel)->attributes[id] = value;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI function_set_attribute(CUfunction function, CUfunction_attribute id, int value) {
  ENTER(cuFuncSetAttribute, true);
  if (fixed_by_compiler(*as<FakeFunction>(function)->kernel, id)) return CUDA_ERROR_NOT_PERMITTED;
  as<FakeFunction>(function)->attributes[id] = value;
  return CUDA_SUCCESS;
}

// ---- memory, streams, events

CUresult CUDAAPI pointer_attributes(unsigned count, CUpointer_attribute* ids, void** values, CUdeviceptr address) {
  ENTER(cuPointerGetAttributes, true);
  const auto& known = FakeDriver::now().pointer_types;
  const auto found = known.find(address);
  for (unsigned i = 0; i < count; ++i) {
    const bool found_it = found != known.end();
    switch (ids[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *static_cast<unsigned*>(values[i]) = found_it ? found->second : 0; break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) = found_it ? address & ~uint64_t{0xfff} : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t*>(values[i]) = found_it ? 0x1000 : 0; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI copy_to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync, true);
  if (!has_tag(stream, Tag::stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI stream_create(CUstream* stream, unsigned) {
  ENTER(cuStreamCreate, true);
  ++FakeDriver::now().live_streams;
  *stream = reinterpret_cast<CUstream>(new FakeObject(Tag::stream));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI stream_destroy(CUstream stream) {
  --FakeDriver::now().live_streams;
  delete as<FakeObject>(stream);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI stream_synchronize(CUstream) { return CUDA_SUCCESS; }
CUresult CUDAAPI event_create(CUevent* event, unsigned) {
  ENTER(cuEventCreate, true);
  ++FakeDriver::now().live_events;
  *event = reinterpret_cast<CUevent>(new FakeObject(Tag::event));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI event_destroy(CUevent event) {
  --FakeDriver::now().live_events;
  delete as<FakeObject>(event);
  return CUDA_SUCCESS;
}

// ---- graphs

CUresult CUDAAPI graph_create(CUgraph* graph, unsigned) {
  ENTER(cuGraphCreate, true);
  ++FakeDriver::now().live_graphs;
  *graph = reinterpret_cast<CUgraph>(new FakeGraph);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI graph_destroy(CUgraph graph) {
  --FakeDriver::now().live_graphs;
  delete as<FakeGraph>(graph);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI graph_nodes(CUgraph graph, CUgraphNode* out, size_t* count) {
  auto& nodes = as<FakeGraph>(graph)->nodes;
  if (out != nullptr) {
    *count = std::min(*count, nodes.size());
    for (size_t i = 0; i < *count; ++i) out[i] = reinterpret_cast<CUgraphNode>(nodes[i].get());
  } else {
    *count = nodes.size();
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI graph_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  const FakeGraph& g = *as<FakeGraph>(graph);
  if (from == nullptr) {
    *count = g.edges.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < g.edges.size(); ++i) {
    if (data == nullptr && g.edges[i].data.from_port != 0) return CUDA_ERROR_LOSSY_QUERY;
    from[i] = reinterpret_cast<CUgraphNode>(g.nodes[g.edges[i].from].get());
    to[i] = reinterpret_cast<CUgraphNode>(g.nodes[g.edges[i].to].get());
    if (data != nullptr) data[i] = g.edges[i].data;
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI node_type(CUgraphNode node, CUgraphNodeType* type) {
  *type = static_cast<CUgraphNodeType>(as<FakeNode>(node)->type);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_node_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  ENTER(cuGraphKernelNodeGetParams, true);
  FakeNode& n = *as<FakeNode>(node);
  *out = n.launch;
  out->func = nullptr;
  out->kern = nullptr;
  if (n.shown == Shown::both || n.shown == Shown::function) out->func = reinterpret_cast<CUfunction>(&n.kernel->function);
  if (n.shown == Shown::both || n.shown == Shown::kernel) out->kern = reinterpret_cast<CUkernel>(n.kernel);
  if (n.shown == Shown::disguised_kernel) out->func = reinterpret_cast<CUfunction>(n.kernel);
  if (!n.extra_buffer.empty()) {
    n.extra_bytes = n.extra_buffer.size();
    n.pointers = {CU_LAUNCH_PARAM_BUFFER_SIZE, &n.extra_bytes, CU_LAUNCH_PARAM_BUFFER_POINTER, n.extra_buffer.data(),
                  CU_LAUNCH_PARAM_END};
    out->extra = n.pointers.data();
    out->kernelParams = nullptr;
  } else {
    n.pointers.clear();
    for (auto& argument : n.arguments) n.pointers.push_back(argument.data());
    out->kernelParams = n.pointers.data();
    out->extra = nullptr;
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI node_get_attribute(CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue* value) {
  const auto& failures = FakeDriver::now().attribute_failures;
  if (const auto failure = failures.find(id); failure != failures.end()) return failure->second;
  const auto& set = as<FakeNode>(node)->attributes;
  const auto found = set.find(id);
  const LaunchAttributeInfo* info = launch_attribute_info(id);
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Like the driver: only the value's own bytes are written, the rest is what was there.
  std::memcpy(value, found == set.end() ? &info->initial : &found->second, info->bytes);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI node_set_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue* value) {
  ENTER(cuGraphKernelNodeSetAttribute, true);
  as<FakeNode>(node)->attributes[id] = *value;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI memcpy_params(CUgraphNode node, CUDA_MEMCPY3D* out) {
  *out = as<FakeNode>(node)->copy;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI memset_params(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  *out = as<FakeNode>(node)->set;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI node_event(CUgraphNode node, CUevent* out) {
  *out = as<FakeNode>(node)->event;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI child_graph(CUgraphNode node, CUgraph* out) {
  *out = reinterpret_cast<CUgraph>(as<FakeNode>(node)->child.get());
  return CUDA_SUCCESS;
}
FakeNode* append(CUgraph graph, CUgraphNode* out, int type) {
  auto& nodes = as<FakeGraph>(graph)->nodes;
  nodes.push_back(std::make_unique<FakeNode>());
  nodes.back()->type = type;
  if (out != nullptr) *out = reinterpret_cast<CUgraphNode>(nodes.back().get());
  return nodes.back().get();
}
CUresult CUDAAPI add_kernel_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t,
                                 const CUDA_KERNEL_NODE_PARAMS* params) {
  ENTER(cuGraphAddKernelNode, true);
  if (!has_tag(params->kern, Tag::kernel)) return CUDA_ERROR_INVALID_HANDLE;
  FakeKernel* kernel = as<FakeKernel>(params->kern);
  const int most = attribute_of(*kernel, kernel->function.attributes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (static_cast<int>(params->sharedMemBytes) > most) return CUDA_ERROR_INVALID_VALUE;
  FakeNode* node = append(graph, out, CU_GRAPH_NODE_TYPE_KERNEL);
  node->kernel = kernel;
  node->launch = *params;
  if (params->extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (void** item = params->extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
      if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = item[1];
      if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<size_t*>(item[1]);
    }
    node->extra_buffer.assign(static_cast<const uint8_t*>(buffer), static_cast<const uint8_t*>(buffer) + bytes);
  } else {
    for (size_t i = 0; i < kernel->spec.params.size(); ++i) {
      const auto* first = static_cast<const uint8_t*>(params->kernelParams[i]);
      node->arguments.emplace_back(first, first + kernel->spec.params[i].bytes);
    }
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_memcpy_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t, const CUDA_MEMCPY3D* params,
                                 CUcontext context) {
  ENTER(cuGraphAddMemcpyNode, true);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  append(graph, out, CU_GRAPH_NODE_TYPE_MEMCPY)->copy = *params;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_memset_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t,
                                 const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context) {
  ENTER(cuGraphAddMemsetNode, true);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  append(graph, out, CU_GRAPH_NODE_TYPE_MEMSET)->set = *params;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_empty_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t) {
  ENTER(cuGraphAddEmptyNode, true);
  append(graph, out, CU_GRAPH_NODE_TYPE_EMPTY);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_record_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t, CUevent event) {
  ENTER(cuGraphAddEventRecordNode, true);
  append(graph, out, CU_GRAPH_NODE_TYPE_EVENT_RECORD)->event = event;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_wait_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t, CUevent event) {
  ENTER(cuGraphAddEventWaitNode, true);
  append(graph, out, CU_GRAPH_NODE_TYPE_WAIT_EVENT)->event = event;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_child_node(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t, CUgraph child) {
  ENTER(cuGraphAddChildGraphNode, true);
  append(graph, out, CU_GRAPH_NODE_TYPE_GRAPH)->child = as<FakeGraph>(child)->clone();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI add_dependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                  const CUgraphEdgeData* data, size_t count) {
  ENTER(cuGraphAddDependencies, true);
  FakeGraph& g = *as<FakeGraph>(graph);
  for (size_t i = 0; i < count; ++i) {
    CUgraphEdgeData one{};
    if (data != nullptr) one = FakeDriver::now().bulk_edges_share_data ? data[0] : data[i];
    g.edges.push_back({g.index_of(as<FakeNode>(from[i])), g.index_of(as<FakeNode>(to[i])), one});
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags, true);
  auto exec = std::make_unique<FakeExec>();
  exec->graph = as<FakeGraph>(graph)->clone();
  exec->flags = flags;
  const auto& nodes = exec->graph->nodes;
  if (!nodes.empty() && !nodes[0]->arguments.empty() && nodes[0]->arguments[0].size() == 8) {
    uint64_t word = 0;  // tells graphs apart in the log
    std::memcpy(&word, nodes[0]->arguments[0].data(), sizeof word);
    FakeDriver::now().note("exec " + std::to_string(word));
  }
  ++FakeDriver::now().live_execs;
  *out = reinterpret_cast<CUgraphExec>(exec.release());
  return CUDA_SUCCESS;
}
CUresult CUDAAPI launch(CUgraphExec exec, CUstream) {
  ENTER(cuGraphLaunch, true);
  ++as<FakeExec>(exec)->launches;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI exec_destroy(CUgraphExec exec) {
  FakeDriver::now().note("destroy exec");
  --FakeDriver::now().live_execs;
  delete as<FakeExec>(exec);
  return CUDA_SUCCESS;
}

}  // namespace

std::unique_ptr<FakeGraph> FakeGraph::clone() const {
  auto copy = std::make_unique<FakeGraph>();
  copy->edges = edges;
  for (const auto& node : nodes) {
    copy->nodes.push_back(std::make_unique<FakeNode>());
    FakeNode& to = *copy->nodes.back();
    to.type = node->type;
    to.kernel = node->kernel;
    to.shown = node->shown;
    to.launch = node->launch;
    to.arguments = node->arguments;
    to.extra_buffer = node->extra_buffer;
    to.attributes = node->attributes;
    to.copy = node->copy;
    to.set = node->set;
    to.event = node->event;
    if (node->child) to.child = node->child->clone();
  }
  return copy;
}

size_t FakeGraph::index_of(const FakeNode* node) const {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].get() == node) return i;
  }
  return SIZE_MAX;
}

FakeDriver::FakeDriver() {
  active = this;
  current = context();
  driver::Driver& t = table_;
  t.cuGetErrorName = t.cuGetErrorString = get_name;
  t.cuCtxGetCurrent = get_current;
  t.cuCtxSetCurrent = set_current;
  t.cuCtxGetDevice = get_device;
  t.cuThreadExchangeStreamCaptureMode = exchange_mode;
  t.cuLibraryLoadData = library_load;
  t.cuLibraryUnload = library_unload;
  t.cuLibraryGetKernel = library_kernel;
  t.cuLibraryGetGlobal = library_global;
  t.cuKernelGetFunction = kernel_function;
  t.cuKernelGetLibrary = kernel_library;
  t.cuKernelGetName = kernel_name;
  t.cuFuncGetName = function_name;
  t.cuFuncGetModule = function_module;
  t.cuModuleGetFunction = module_function;
  t.cuKernelGetParamInfo = kernel_param_info;
  t.cuFuncGetParamInfo = function_param_info;
  t.cuKernelGetAttribute = kernel_get_attribute;
  t.cuFuncGetAttribute = function_get_attribute;
  t.cuKernelSetAttribute = kernel_set_attribute;
  t.cuFuncSetAttribute = function_set_attribute;
  t.cuPointerGetAttributes = pointer_attributes;
  t.cuMemcpyHtoDAsync = copy_to_device;
  t.cuStreamCreate = stream_create;
  t.cuStreamDestroy = stream_destroy;
  t.cuStreamSynchronize = stream_synchronize;
  t.cuEventCreate = event_create;
  t.cuEventDestroy = event_destroy;
  t.cuGraphCreate = graph_create;
  t.cuGraphDestroy = graph_destroy;
  t.cuGraphGetNodes = graph_nodes;
  t.cuGraphGetEdges = graph_edges;
  t.cuGraphNodeGetType = node_type;
  t.cuGraphKernelNodeGetParams = kernel_node_params;
  t.cuGraphKernelNodeGetAttribute = node_get_attribute;
  t.cuGraphKernelNodeSetAttribute = node_set_attribute;
  t.cuGraphMemcpyNodeGetParams = memcpy_params;
  t.cuGraphMemsetNodeGetParams = memset_params;
  t.cuGraphEventRecordNodeGetEvent = node_event;
  t.cuGraphEventWaitNodeGetEvent = node_event;
  t.cuGraphChildGraphNodeGetGraph = child_graph;
  t.cuGraphAddKernelNode = add_kernel_node;
  t.cuGraphAddMemcpyNode = add_memcpy_node;
  t.cuGraphAddMemsetNode = add_memset_node;
  t.cuGraphAddEmptyNode = add_empty_node;
  t.cuGraphAddEventRecordNode = add_record_node;
  t.cuGraphAddEventWaitNode = add_wait_node;
  t.cuGraphAddChildGraphNode = add_child_node;
  t.cuGraphAddDependencies = add_dependencies;
  t.cuGraphInstantiateWithFlags = instantiate;
  t.cuGraphLaunch = launch;
  t.cuGraphExecDestroy = exec_destroy;
}

FakeDriver::~FakeDriver() {
  current = nullptr;
  active = nullptr;
}

FakeDriver& FakeDriver::now() { return *active; }

CUresult FakeDriver::enter(const char* call, bool needs_context) {
  if (on_call) on_call(call);
  if (needs_context && current != context()) {
    ++violations;
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const std::lock_guard lock(mutex_);
  const auto failure = failures.find(call);
  return failure == failures.end() ? CUDA_SUCCESS : failure->second;
}

void FakeDriver::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  log.push_back(text);
}

std::vector<std::string> FakeDriver::calls(const std::string& prefix) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> found;
  for (const std::string& text : log) {
    if (text.rfind(prefix, 0) == 0) found.push_back(text);
  }
  return found;
}

CUgraph FakeDriver::graph() {
  CUgraph graph = nullptr;
  graph_create(&graph, 0);
  return graph;
}

FakeNode* FakeDriver::add_kernel(CUgraph graph, CUkernel kernel, std::vector<std::vector<uint8_t>> arguments, Shown shown) {
  FakeNode* node = append(graph, nullptr, CU_GRAPH_NODE_TYPE_KERNEL);
  node->kernel = as<FakeKernel>(kernel);
  node->arguments = std::move(arguments);
  node->shown = shown;
  node->launch.gridDimX = node->launch.gridDimY = node->launch.gridDimZ = 1;
  node->launch.blockDimX = 32;
  node->launch.blockDimY = node->launch.blockDimZ = 1;
  return node;
}

FakeNode* FakeDriver::add_node(CUgraph graph, int type) { return append(graph, nullptr, type); }

void FakeDriver::add_edge(CUgraph graph, FakeNode* from, FakeNode* to, uint8_t from_port, uint8_t type) {
  FakeGraph& g = of(graph);
  CUgraphEdgeData data{};
  data.from_port = from_port;
  data.type = type;
  g.edges.push_back({g.index_of(from), g.index_of(to), data});
}

CUlibrary FakeDriver::load(const std::string& image) {
  CUlibrary library = nullptr;
  library_load(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  return library;
}

CUkernel FakeDriver::kernel(CUlibrary library, const std::string& name) {
  CUkernel kernel = nullptr;
  library_kernel(&kernel, library, name.c_str());
  return kernel;
}

namespace {
FakeAbi* active_abi = nullptr;
}

FakeAbi::FakeAbi() {
  active_abi = this;
  abi_.images = [](foundry_image* out, size_t capacity) {
    const auto& all = active_abi->images;
    std::copy_n(all.begin(), std::min(capacity, all.size()), out);
    return all.size();
  };
}
FakeAbi::~FakeAbi() { active_abi = nullptr; }

void FakeAbi::add(const void* handle, uint32_t is_library) {
  foundry_image image{};
  image.id = images.size();
  image.handle = const_cast<void*>(handle);
  image.is_library = is_library;
  image.loaded = 1;
  image.entry_point = image.source = "";
  images.push_back(image);
}

}  // namespace foundry::graph::testing
