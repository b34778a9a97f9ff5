// Graphs built and read through the API: node parameters, attributes, edges, clones, the driver's traps.
#include <cstring>

#include "tests/unit/sim/sim.h"

namespace {

class GraphTest : public CodeTest {
 protected:
  void SetUp() override {
    CodeTest::SetUp();
    OK(SIM(cuGraphCreate)(&graph, 0));
    at = memory(256);
  }
  // A node that writes `value` to word `index`.
  CUDA_KERNEL_NODE_PARAMS fill_params(unsigned index, unsigned word) {
    to = at + 4 * index;
    value = word;
    count = 1;
    params[0] = &to;
    params[1] = &value;
    params[2] = &count;
    CUDA_KERNEL_NODE_PARAMS p = {};
    p.kern = kernel("fill_words");
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
    p.blockDimX = 32;
    p.kernelParams = params;
    return p;
  }
  CUgraphNode add(unsigned index, unsigned word, std::vector<CUgraphNode> after = {}) {
    CUDA_KERNEL_NODE_PARAMS p = fill_params(index, word);
    CUgraphNode node = nullptr;
    EXPECT_EQ(SIM(cuGraphAddKernelNode_v2)(&node, graph, after.data(), after.size(), &p), CUDA_SUCCESS) << sim_log();
    return node;
  }
  CUgraphExec instantiate() {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(SIM(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS) << sim_log();
    return exec;
  }
  void run(CUgraphExec exec) {
    OK(SIM(cuGraphLaunch)(exec, stream));
    OK(SIM(cuStreamSynchronize)(stream));
  }

  CUgraph graph = nullptr;
  CUdeviceptr at = 0, to = 0;
  unsigned value = 0;
  std::uint64_t count = 0;
  void* params[4] = {};
};

TEST_F(GraphTest, KernelParametersBelongToTheNode) {
  CUgraphNode node = add(3, 77);
  to = 0;
  value = 0;  // the caller's storage may go
  CUDA_KERNEL_NODE_PARAMS p;
  OK(SIM(cuGraphKernelNodeGetParams_v2)(node, &p));
  EXPECT_EQ(p.kern, kernel("fill_words")) << "library kernels show both";
  EXPECT_EQ(p.func, function("fill_words"));
  EXPECT_EQ(p.ctx, context);
  ASSERT_NE(p.kernelParams, nullptr);
  EXPECT_EQ(p.extra, nullptr);
  EXPECT_EQ(*static_cast<CUdeviceptr*>(p.kernelParams[0]), at + 12);
  EXPECT_EQ(*static_cast<unsigned*>(p.kernelParams[1]), 77u);
  OK(SIM(cuGraphKernelNodeSetParams_v2)(node, &p));  // what was read can be set
  run(instantiate());
  EXPECT_EQ(read(at, 3), 77);
}

TEST_F(GraphTest, ModuleKernelsShowOnlyTheFunction) {
  CUmodule module;
  OK(SIM(cuModuleLoadData)(&module, image.data()));
  CUDA_KERNEL_NODE_PARAMS p = fill_params(0, 5);
  p.kern = nullptr;
  OK(SIM(cuModuleGetFunction)(&p.func, module, "fill_words"));
  CUfunction f = p.func;
  CUgraphNode node;
  OK(SIM(cuGraphAddKernelNode_v2)(&node, graph, nullptr, 0, &p));
  OK(SIM(cuGraphKernelNodeGetParams_v2)(node, &p));
  EXPECT_EQ(p.func, f);
  EXPECT_EQ(p.kern, nullptr);
  CUgraphExec exec = instantiate();
  OK(SIM(cuModuleUnload)(module));
  EXPECT_EQ(SIM(cuGraphLaunch)(exec, stream), CUDA_ERROR_INVALID_HANDLE) << "its code is gone";
}

TEST_F(GraphTest, AKernelInDisguise) {
  CUDA_KERNEL_NODE_PARAMS p = fill_params(0, 6);
  p.func = reinterpret_cast<CUfunction>(p.kern);
  p.kern = nullptr;
  CUgraphNode node;
  OK(SIM(cuGraphAddKernelNode_v2)(&node, graph, nullptr, 0, &p));
  run(instantiate());
  EXPECT_EQ(read(at), 6);
}

TEST_F(GraphTest, ExtraBuffersStayBuffers) {
  struct {
    CUdeviceptr to;
    unsigned value;
    alignas(8) std::uint64_t count;
    char tail[8];
  } buffer = {at, 9, 2, {}};
  std::size_t size = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS p = fill_params(0, 0);
  p.kernelParams = nullptr;
  p.extra = extra;
  CUgraphNode node;
  OK(SIM(cuGraphAddKernelNode_v2)(&node, graph, nullptr, 0, &p));
  std::memset(&buffer, 0xee, sizeof buffer);
  OK(SIM(cuGraphKernelNodeGetParams_v2)(node, &p));
  EXPECT_EQ(p.kernelParams, nullptr);
  ASSERT_NE(p.extra, nullptr);
  std::size_t bytes = 0;
  for (void** e = p.extra; *e != CU_LAUNCH_PARAM_END; e += 2) {
    if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<std::size_t*>(e[1]);
  }
  EXPECT_EQ(bytes, sizeof buffer);
  run(instantiate());
  EXPECT_EQ(read(at, 1), 9);
}

TEST_F(GraphTest, FirstVersionOfTheParameters) {
  CUDA_KERNEL_NODE_PARAMS wide = fill_params(1, 4);
  CUDA_KERNEL_NODE_PARAMS_v1 p;
  std::memcpy(&p, &wide, sizeof p);
  p.func = function("fill_words");
  CUgraphNode node;
  OK(SIM(cuGraphAddKernelNode)(&node, graph, nullptr, 0, &p));
  OK(SIM(cuGraphKernelNodeGetParams)(node, &p));
  EXPECT_EQ(p.func, function("fill_words"));
  run(instantiate());
  EXPECT_EQ(read(at, 1), 4);
}

TEST_F(GraphTest, AddingANodeOverItsSharedMemoryLimitFailsAndTheRestInstantiates) {
  add(0, 1);
  CUDA_KERNEL_NODE_PARAMS p = fill_params(1, 2);
  p.sharedMemBytes = 60000;
  CUgraphNode node;
  EXPECT_EQ(SIM(cuGraphAddKernelNode_v2)(&node, graph, nullptr, 0, &p), CUDA_ERROR_INVALID_VALUE);
  run(instantiate());
  EXPECT_EQ(read(at, 0), 1);
  EXPECT_EQ(read(at, 1), 0);
  OK(SIM(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, p.kern, 0));
  OK(SIM(cuGraphAddKernelNode_v2)(&node, graph, nullptr, 0, &p));
}

TEST_F(GraphTest, AttributesOneByOne) {
  CUgraphNode node = add(0, 1), copy = add(1, 1);
  CUkernelNodeAttrValue v;
  OK(SIM(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &v));
  EXPECT_EQ(v.memSyncDomainMap.default_, 0);
  EXPECT_EQ(v.memSyncDomainMap.remote, 1);
  OK(SIM(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &v));
  EXPECT_EQ(static_cast<int>(v.sharedMemCarveout), -1);
  v = {};
  v.priority = -2;
  OK(SIM(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
  v = {};
  v.clusterDim = {1, 1, 1};
  OK(SIM(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
  OK(SIM(cuGraphKernelNodeCopyAttributes)(copy, node));
  OK(SIM(cuGraphKernelNodeGetAttribute)(copy, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
  EXPECT_EQ(v.priority, -2);
  EXPECT_EQ(SIM(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuGraphKernelNodeGetAttribute)(node, static_cast<CUlaunchAttributeID>(99), &v),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(logged("no attribute 99"));
  v.priority = -6;
  EXPECT_EQ(SIM(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphTest, AClusterAboveEightNeedsItsFlagInANodeToo) {
  CUDA_KERNEL_NODE_PARAMS p = fill_params(0, 1);
  p.gridDimX = 16;
  CUgraphNode node;
  OK(SIM(cuGraphAddKernelNode_v2)(&node, graph, nullptr, 0, &p));
  CUkernelNodeAttrValue v = {};
  v.clusterDim = {16, 1, 1};
  EXPECT_EQ(SIM(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v),
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
  OK(SIM(cuFuncSetAttribute)(function("fill_words"), CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  OK(SIM(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
  instantiate();
  OK(SIM(cuFuncSetAttribute)(function("fill_words"), CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0));
  CUgraphExec exec;
  CUDA_GRAPH_INSTANTIATE_PARAMS how = {};
  EXPECT_EQ(SIM(cuGraphInstantiateWithParams)(&exec, graph, &how), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(how.hErrNode_out, node);
}

TEST_F(GraphTest, EdgesWithData) {
  CUgraphNode a = add(0, 1), b = add(1, 2), c = add(2, 3);
  CUgraphEdgeData data[2] = {};
  data[0].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  data[0].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  CUgraphNode from[] = {a, b}, to_nodes[] = {b, c};
  OK(SIM(cuGraphAddDependencies_v2)(graph, from, to_nodes, data, 2));
  EXPECT_EQ(SIM(cuGraphAddDependencies_v2)(graph, from, to_nodes, data, 1), CUDA_ERROR_INVALID_VALUE)
      << "there already";
  CUgraphNode f[4], t[4];
  CUgraphEdgeData d[4];
  std::size_t n = 4;
  OK(SIM(cuGraphGetEdges_v2)(graph, f, t, d, &n));
  ASSERT_EQ(n, 2u);
  EXPECT_EQ(f[2], nullptr) << "the rest is nulled";
  EXPECT_EQ(d[0].type, 1);
  EXPECT_EQ(d[1].type, 0);
  n = 1;
  CUgraphNode one;
  EXPECT_EQ(SIM(cuGraphNodeGetDependencies)(b, &one, &n), CUDA_ERROR_LOSSY_QUERY);
  OK(SIM(cuGraphNodeGetDependencies_v2)(b, &one, d, &n));
  EXPECT_EQ(one, a);
  data[0].to_port = 1;
  EXPECT_EQ(SIM(cuGraphAddDependencies_v2)(graph, &a, &c, data, 1), CUDA_ERROR_INVALID_VALUE);
  CUgraphNode empty;
  OK(SIM(cuGraphAddEmptyNode)(&empty, graph, nullptr, 0));
  data[0].to_port = 0;
  EXPECT_EQ(SIM(cuGraphAddDependencies_v2)(graph, &a, &empty, data, 1), CUDA_ERROR_INVALID_VALUE) << "kernels only";
  EXPECT_EQ(SIM(cuGraphRemoveDependencies_v2)(graph, &b, &c, data, 1), CUDA_ERROR_INVALID_VALUE) << "other data";
  OK(SIM(cuGraphRemoveDependencies_v2)(graph, &b, &c, &data[1], 1));
  OK(SIM(cuGraphRemoveDependencies_v2)(graph, &a, &b, data, 1));
}

TEST_F(GraphTest, TrapOfBulkEdges) {
  ASSERT_EQ(SIM(foundry_sim_set_traps)("edge-data"), 0);
  CUgraphNode a = add(0, 1), b = add(1, 2), c = add(2, 3);
  CUgraphEdgeData data[2] = {};
  data[0].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  data[0].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  CUgraphNode from[] = {a, b}, to_nodes[] = {b, c}, f[2], t[2];
  OK(SIM(cuGraphAddDependencies_v2)(graph, from, to_nodes, data, 2));
  CUgraphEdgeData d[2];
  std::size_t n = 2;
  OK(SIM(cuGraphGetEdges_v2)(graph, f, t, d, &n));
  EXPECT_EQ(d[1].type, 1) << "the first edge's data";
}

TEST_F(GraphTest, CyclesAreFoundAtInstantiation) {
  CUgraphNode a = add(0, 1), b = add(1, 2, {a});
  OK(SIM(cuGraphAddDependencies)(graph, &b, &a, 1));
  CUgraphExec exec;
  CUDA_GRAPH_INSTANTIATE_PARAMS how = {};
  EXPECT_EQ(SIM(cuGraphInstantiateWithParams)(&exec, graph, &how), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(how.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
}

TEST_F(GraphTest, CopyAndSetNodes) {
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = at;
  set.value = 7;
  set.elementSize = 4;
  set.width = 2;
  set.height = 2;
  set.pitch = 64;
  CUgraphNode first, second;
  OK(SIM(cuGraphAddMemsetNode)(&first, graph, nullptr, 0, &set, context));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = at + 64;
  copy.dstDevice = at + 128;
  copy.WidthInBytes = 8;
  copy.Height = copy.Depth = 1;
  OK(SIM(cuGraphAddMemcpyNode)(&second, graph, &first, 1, &copy, context));
  run(instantiate());
  EXPECT_EQ(read(at, 33), 7);
  CUDA_MEMCPY3D shown;
  OK(SIM(cuGraphMemcpyNodeGetParams)(second, &shown));
  EXPECT_EQ(std::memcmp(&shown, &copy, sizeof copy), 0);
  CUDA_MEMSET_NODE_PARAMS shown_set;
  OK(SIM(cuGraphMemsetNodeGetParams)(first, &shown_set));
  EXPECT_EQ(shown_set.pitch, 64u);
  set.dst = 0x1234;
  EXPECT_EQ(SIM(cuGraphAddMemsetNode)(&first, graph, nullptr, 0, &set, context), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuGraphMemcpyNodeGetParams)(first, &shown), CUDA_ERROR_INVALID_VALUE) << "another type";
}

TEST_F(GraphTest, ChildGraphsAndClones) {
  add(0, 11);
  CUgraph parent, copy;
  OK(SIM(cuGraphCreate)(&parent, 0));
  CUgraphNode child;
  OK(SIM(cuGraphAddChildGraphNode)(&child, parent, nullptr, 0, graph));
  OK(SIM(cuGraphDestroy)(graph));
  CUgraph inside;
  OK(SIM(cuGraphChildGraphNodeGetGraph)(child, &inside));
  EXPECT_EQ(SIM(cuGraphDestroy)(inside), CUDA_ERROR_INVALID_VALUE) << "it belongs to the node";
  OK(SIM(cuGraphClone)(&copy, parent));
  CUgraphNode twin;
  OK(SIM(cuGraphNodeFindInClone)(&twin, child, copy));
  OK(SIM(cuGraphDestroy)(parent));
  graph = copy;
  run(instantiate());
  EXPECT_EQ(read(at), 11);
  OK(SIM(cuGraphDestroy)(copy));
  EXPECT_EQ(new_graphs(), 0u);
  EXPECT_EQ(new_nodes(), 0u);
}

TEST_F(GraphTest, GraphOwnedMemory) {
  CUDA_MEM_ALLOC_NODE_PARAMS alloc = {};
  alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  alloc.bytesize = 4096;
  CUgraphNode a, f, c;
  OK(SIM(cuGraphAddMemAllocNode)(&a, graph, nullptr, 0, &alloc));
  ASSERT_NE(alloc.dptr, 0u);
  CUdeviceptr target = alloc.dptr;
  unsigned word = 5;
  std::uint64_t words = 4;
  void* arguments[] = {&target, &word, &words};
  CUDA_KERNEL_NODE_PARAMS p = fill_params(0, 0);
  p.kernelParams = arguments;
  OK(SIM(cuGraphAddKernelNode_v2)(&f, graph, &a, 1, &p));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = alloc.dptr;
  copy.dstDevice = at;
  copy.WidthInBytes = 16;
  copy.Height = copy.Depth = 1;
  OK(SIM(cuGraphAddMemcpyNode)(&c, graph, &f, 1, &copy, context));
  CUgraphExec leaking = instantiate();
  CUgraphNode freed;
  OK(SIM(cuGraphAddMemFreeNode)(&freed, graph, &c, 1, alloc.dptr));
  CUgraphExec exec = instantiate();
  run(exec);
  run(exec);
  EXPECT_EQ(read(at, 3), 5);
  run(leaking);
  EXPECT_EQ(SIM(cuGraphLaunch)(leaking, stream), CUDA_ERROR_INVALID_VALUE) << "not freed";
  OK(SIM(cuMemFreeAsync)(alloc.dptr, stream));
  OK(SIM(cuStreamSynchronize)(stream));
  run(leaking);
  CUDA_MEM_ALLOC_NODE_PARAMS shown;
  OK(SIM(cuGraphMemAllocNodeGetParams)(a, &shown));
  EXPECT_EQ(shown.dptr, alloc.dptr);
}

TEST_F(GraphTest, ForeignNodesCanBeMadeAndReadButNotInstantiated) {
  CUgraphNodeParams p = {};
  p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  OK(SIM(cuGraphConditionalHandleCreate)(&p.conditional.handle, graph, context, 1, 0));
  p.conditional.type = CU_GRAPH_COND_TYPE_IF;
  p.conditional.size = 1;
  p.conditional.ctx = context;
  CUgraphNode node;
  OK(SIM(cuGraphAddNode_v2)(&node, graph, nullptr, nullptr, 0, &p));
  ASSERT_NE(p.conditional.phGraph_out, nullptr);
  EXPECT_NE(p.conditional.phGraph_out[0], nullptr);
  CUgraphNodeType type;
  OK(SIM(cuGraphNodeGetType)(node, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
  CUstreamBatchMemOpParams op = {};
  op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = at;
  op.writeValue.value = 3;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {context, 1, &op, 0};
  CUgraphNode ops;
  OK(SIM(cuGraphAddBatchMemOpNode)(&ops, graph, nullptr, 0, &batch));
  op.writeValue.value = 4;
  OK(SIM(cuGraphBatchMemOpNodeGetParams)(ops, &batch));
  EXPECT_EQ(batch.paramArray[0].writeValue.value, 3u);
  CUgraphExec exec;
  CUDA_GRAPH_INSTANTIATE_PARAMS how = {};
  EXPECT_EQ(SIM(cuGraphInstantiateWithParams)(&exec, graph, &how), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(how.hErrNode_out, node);
  EXPECT_EQ(how.result_out, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
}

TEST_F(GraphTest, GenericNodesOfEveryRunnableType) {
  CUgraphNodeParams p = {};
  p.type = CU_GRAPH_NODE_TYPE_KERNEL;
  CUDA_KERNEL_NODE_PARAMS k = fill_params(5, 8);
  std::memcpy(&p.kernel, &k, sizeof k);
  CUgraphNode node, last;
  OK(SIM(cuGraphAddNode_v2)(&node, graph, nullptr, nullptr, 0, &p));
  p = {};
  p.type = CU_GRAPH_NODE_TYPE_MEMSET;
  p.memset.dst = at + 24;
  p.memset.elementSize = 1;
  p.memset.width = 4;
  p.memset.height = 1;
  p.memset.value = 1;
  OK(SIM(cuGraphAddNode_v2)(&last, graph, &node, nullptr, 1, &p));
  p.memset.value = 2;
  OK(SIM(cuGraphNodeSetParams)(last, &p));
  run(instantiate());
  EXPECT_EQ(read(at, 5), 8);
  EXPECT_EQ(read(at, 6), 0x02020202);
}

TEST_F(GraphTest, DestroyedThingsAreNamed) {
  CUgraphNode a = add(0, 1), b = add(1, 2, {a});
  OK(SIM(cuGraphDestroyNode)(a));
  std::size_t n = 9;
  OK(SIM(cuGraphNodeGetDependencies_v2)(b, nullptr, nullptr, &n));
  EXPECT_EQ(n, 0u);
  CUgraphNodeType type;
  EXPECT_EQ(SIM(cuGraphNodeGetType)(a, &type), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(logged("was destroyed already"));
  OK(SIM(cuGraphDestroy)(graph));
  EXPECT_EQ(SIM(cuGraphDestroy)(graph), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphTest, UserObjectsLiveAsLongAsTheGraph) {
  static int destroyed = 0;
  destroyed = 0;
  CUuserObject object;
  OK(SIM(cuUserObjectCreate)(&object, nullptr, [](void*) { ++destroyed; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(SIM(cuGraphRetainUserObject)(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphExec exec = instantiate();
  OK(SIM(cuGraphDestroy)(graph));
  EXPECT_EQ(destroyed, 0);
  OK(SIM(cuGraphExecDestroy)(exec));
  EXPECT_EQ(destroyed, 1);
}

}  // namespace
