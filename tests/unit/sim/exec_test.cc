// Executable graphs: launches, order, updates.
#include <map>

#include "tests/unit/sim/sim.h"

namespace {

class ExecTest : public CodeTest {
 protected:
  void SetUp() override {
    CodeTest::SetUp();
    OK(SIM(cuGraphCreate)(&graph, 0));
    at = memory(256);
  }
  CUgraphNode add(CUgraph to, CUdeviceptr where, unsigned word, std::vector<CUgraphNode> after = {}) {
    std::uint64_t count = 1;
    void* params[] = {&where, &word, &count};
    CUDA_KERNEL_NODE_PARAMS p = {};
    p.kern = kernel("fill_words");
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    CUgraphNode node = nullptr;
    EXPECT_EQ(SIM(cuGraphAddKernelNode_v2)(&node, to, after.data(), after.size(), &p), CUDA_SUCCESS) << sim_log();
    return node;
  }
  CUresult set(CUgraphExec exec, CUgraphNode node, CUdeviceptr where, unsigned word) {
    std::uint64_t count = 1;
    void* params[] = {&where, &word, &count};
    CUDA_KERNEL_NODE_PARAMS p = {};
    p.func = function("fill_words");
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    return SIM(cuGraphExecKernelNodeSetParams_v2)(exec, node, &p);
  }
  CUgraphExec instantiate(CUgraph of, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(SIM(cuGraphInstantiateWithFlags)(&exec, of, flags), CUDA_SUCCESS) << sim_log();
    return exec;
  }
  void run(CUgraphExec exec) {
    OK(SIM(cuGraphLaunch)(exec, stream));
    OK(SIM(cuStreamSynchronize)(stream));
  }
  CUgraph graph = nullptr;
  CUdeviceptr at = 0;
};

TEST_F(ExecTest, OutlivesItsGraphAndTheChangesToIt) {
  CUgraphNode node = add(graph, at, 1);
  CUgraphExec exec = instantiate(graph, 8);
  cuuint64_t flags;
  OK(SIM(cuGraphExecGetFlags)(exec, &flags));
  EXPECT_EQ(flags, 8u);
  OK(SIM(cuGraphDestroyNode)(node));
  OK(SIM(cuGraphDestroy)(graph));
  OK(SIM(cuGraphUpload)(exec, stream));
  run(exec);
  EXPECT_EQ(read(at), 1);
  OK(SIM(cuGraphExecDestroy)(exec));
  EXPECT_EQ(SIM(cuGraphExecDestroy)(exec), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuGraphLaunch)(exec, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ExecTest, EdgesOrderAndTheirAbsenceShows) {
  CUgraphNode first = add(graph, at, 1);
  add(graph, at, 2, {first});
  CUgraph loose;
  OK(SIM(cuGraphCreate)(&loose, 0));
  add(loose, at, 1);
  add(loose, at, 2);
  CUgraphExec ordered = instantiate(graph), racing = instantiate(loose);
  std::map<int, int> seen;
  for (int i = 0; i < 64; ++i) {
    run(ordered);
    EXPECT_EQ(read(at), 2);
    run(racing);
    ++seen[read(at)];
  }
  EXPECT_GT(seen[1], 0) << "nodes without an edge run in either order";
  EXPECT_GT(seen[2], 0);
}

TEST_F(ExecTest, LaunchesOfOneGraphDoNotOverlap) {
  unsigned microseconds = 20000;
  void* params[] = {&microseconds};
  CUDA_KERNEL_NODE_PARAMS p = {};
  p.kern = kernel("delay");
  p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = params;
  CUgraphNode wait;
  OK(SIM(cuGraphAddKernelNode_v2)(&wait, graph, nullptr, 0, &p));
  add(graph, at, 1, {wait});
  CUgraphExec exec = instantiate(graph);
  CUstream other;
  OK(SIM(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
  OK(SIM(cuGraphLaunch)(exec, stream));
  OK(SIM(cuGraphLaunch)(exec, other));
  OK(SIM(cuStreamSynchronize)(other));
  EXPECT_EQ(SIM(cuStreamQuery)(stream), CUDA_SUCCESS) << "the second one waited for the first";
  OK(SIM(cuGraphLaunch)(exec, stream));
  OK(SIM(cuGraphExecDestroy)(exec));  // in flight
  OK(SIM(cuStreamSynchronize)(stream));
}

TEST_F(ExecTest, ChangingANodeLeavesLaunchesInFlightAlone) {
  CUgraphNode node = add(graph, at, 1);
  CUgraphExec exec = instantiate(graph);
  OK(delay(stream, 20000));
  OK(SIM(cuGraphLaunch)(exec, stream));
  OK(set(exec, node, at + 4, 2));
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(read(at), 1);
  EXPECT_EQ(read(at, 1), 0);
  run(exec);
  EXPECT_EQ(read(at, 1), 2);
  CUgraph other;
  OK(SIM(cuGraphCreate)(&other, 0));
  EXPECT_EQ(set(exec, add(other, at, 1), at, 1), CUDA_ERROR_INVALID_VALUE) << "not a node of its graph";
}

TEST_F(ExecTest, SwitchedOffNodesAreSkipped) {
  CUgraphNode first = add(graph, at, 1), second = add(graph, at + 4, 2, {first});
  CUgraphExec exec = instantiate(graph);
  OK(SIM(cuGraphNodeSetEnabled)(exec, first, 0));
  unsigned enabled = 1;
  OK(SIM(cuGraphNodeGetEnabled)(exec, first, &enabled));
  EXPECT_EQ(enabled, 0u);
  run(exec);
  EXPECT_EQ(read(at), 0);
  EXPECT_EQ(read(at, 1), 2);
  (void)second;
}

class UpdateTest : public ExecTest {
 protected:
  CUresult update(CUgraphExec exec, CUgraph with) {
    info = {};
    return SIM(cuGraphExecUpdate_v2)(exec, with, &info);
  }
  void priority(CUgraphNode node, int value) {
    CUkernelNodeAttrValue v = {};
    v.priority = value;
    OK(SIM(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
  }
  CUgraphExecUpdateResultInfo info = {};
};

TEST_F(UpdateTest, SameShapeOtherParameters) {
  CUgraphNode a = add(graph, at, 1);
  add(graph, at + 4, 2, {a});
  CUgraphExec exec = instantiate(graph);
  CUgraph next;
  OK(SIM(cuGraphCreate)(&next, 0));
  CUgraphNode b = add(next, at + 8, 3);
  add(next, at + 12, 4, {b});
  OK(update(exec, next));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  run(exec);
  EXPECT_EQ(read(at), 0);
  EXPECT_EQ(read(at, 3), 4);
  OK(set(exec, a, at, 9));  // the handles stay those of the first graph
}

TEST_F(UpdateTest, OtherShapesAreRefusedAndChangeNothing) {
  CUgraphNode a = add(graph, at, 1);
  add(graph, at + 4, 2, {a});
  CUgraphExec exec = instantiate(graph);
  CUgraph next;
  OK(SIM(cuGraphCreate)(&next, 0));
  add(next, at + 8, 3);
  EXPECT_EQ(update(exec, next), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  add(next, at + 8, 3);
  EXPECT_EQ(update(exec, next), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) << "no edge";
  CUgraph third;
  OK(SIM(cuGraphCreate)(&third, 0));
  CUgraphNode c = add(third, at, 1), e;
  OK(SIM(cuGraphAddEmptyNode)(&e, third, &c, 1));
  EXPECT_EQ(update(exec, third), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  EXPECT_EQ(info.errorNode, e);
  run(exec);
  EXPECT_EQ(read(at, 1), 2);
}

// A cooperative launch is checked against the size of the device: whether the attribute was carried shows in that.
TEST_F(UpdateTest, AttributesAreCarriedUnlessTheTrapIsSet) {
  for (const char* trap : {"", "exec-update-attrs"}) {
    ASSERT_EQ(SIM(foundry_sim_set_traps)(trap), 0);
    CUgraph plain, changed;
    OK(SIM(cuGraphCreate)(&plain, 0));
    OK(SIM(cuGraphCreate)(&changed, 0));
    CUgraphNode node = add(plain, at, 1);
    CUgraphExec exec = instantiate(plain);
    CUkernelNodeAttrValue v = {};
    v.cooperative = 1;
    OK(SIM(cuGraphKernelNodeSetAttribute)(add(changed, at, 1), CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
    OK(update(exec, changed));
    std::uint64_t count = 1;
    unsigned word = 1;
    void* params[] = {&at, &word, &count};
    CUDA_KERNEL_NODE_PARAMS p = {};
    p.func = function("fill_words");
    p.gridDimX = 100000;
    p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
    p.blockDimX = 1024;
    p.kernelParams = params;
    EXPECT_EQ(SIM(cuGraphExecKernelNodeSetParams_v2)(exec, node, &p),
              *trap == 0 ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS);
  }
}

}  // namespace
