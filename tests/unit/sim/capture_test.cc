// Stream capture: sequences, forks and joins, and what may not happen meanwhile.
#include <functional>
#include <thread>

#include "tests/unit/sim/sim.h"

namespace {

class CaptureTest : public CodeTest {
 protected:
  void SetUp() override {
    CodeTest::SetUp();
    OK(SIM(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    OK(SIM(cuEventCreate)(&fork, CU_EVENT_DISABLE_TIMING));
    OK(SIM(cuEventCreate)(&join, CU_EVENT_DISABLE_TIMING));
    at = memory(256);
    function("fill_words");
  }
  CUresult begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    return SIM(cuStreamBeginCapture_v2)(stream, mode);
  }
  CUresult end(CUgraph* graph) { return SIM(cuStreamEndCapture)(stream, graph); }
  CUresult end() {
    CUgraph graph = nullptr;
    CUresult result = end(&graph);
    if (graph != nullptr) SIM(cuGraphDestroy)(graph);
    return result;
  }
  CUstreamCaptureStatus status(CUstream of) {
    CUstreamCaptureStatus value;
    EXPECT_EQ(SIM(cuStreamIsCapturing)(of, &value), CUDA_SUCCESS);
    return value;
  }
  std::size_t count(CUgraph graph) {
    std::size_t n = 0;
    EXPECT_EQ(SIM(cuGraphGetNodes)(graph, nullptr, &n), CUDA_SUCCESS);
    return n;
  }
  std::size_t edges(CUgraph graph) {
    std::size_t n = 0;
    EXPECT_EQ(SIM(cuGraphGetEdges_v2)(graph, nullptr, nullptr, nullptr, &n), CUDA_SUCCESS);
    return n;
  }

  CUstream other = nullptr;
  CUevent fork = nullptr, join = nullptr;
  CUdeviceptr at = 0;
};

TEST_F(CaptureTest, RecordsInsteadOfRunning) {
  OK(begin());
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(fill(stream, at, 1));
  OK(SIM(cuMemsetD32Async)(at + 4, 2, 1, stream));
  OK(SIM(cuMemcpyDtoDAsync_v2)(at + 8, at, 8, stream));
  CUgraph graph;
  OK(end(&graph));
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(count(graph), 3u);
  EXPECT_EQ(edges(graph), 2u);
  EXPECT_EQ(read(at), 0);
  CUgraphExec exec;
  OK(SIM(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  OK(SIM(cuGraphLaunch)(exec, stream));
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(read(at, 2), 1);
  EXPECT_EQ(read(at, 3), 2);
}

TEST_F(CaptureTest, ForkAndJoinThroughEvents) {
  OK(begin());
  OK(fill(stream, at, 1));
  OK(SIM(cuEventRecord)(fork, stream));
  OK(SIM(cuStreamWaitEvent)(other, fork, 0));
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(fill(other, at + 4, 2));
  OK(fill(stream, at + 8, 3));
  OK(SIM(cuEventRecord)(join, other));
  OK(SIM(cuStreamWaitEvent)(stream, join, 0));
  OK(fill(stream, at + 12, 4));
  CUgraph graph;
  OK(end(&graph));
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(count(graph), 4u);
  EXPECT_EQ(edges(graph), 4u) << "a diamond";
}

TEST_F(CaptureTest, UnjoinedWorkIsRefused) {
  OK(begin());
  OK(SIM(cuEventRecord)(fork, stream));
  OK(SIM(cuStreamWaitEvent)(other, fork, 0));
  OK(fill(other, at, 2));
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(status(other), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(new_graphs(), 0u) << "nothing is left behind";
  OK(fill(other, at, 3));
}

TEST_F(CaptureTest, EndsInItsOwnStreamAndThread) {
  OK(begin());
  OK(SIM(cuEventRecord)(fork, stream));
  OK(SIM(cuStreamWaitEvent)(other, fork, 0));
  CUgraph graph;
  EXPECT_EQ(SIM(cuStreamEndCapture)(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(begin());
  std::thread([&] {
    SIM(cuCtxSetCurrent)(context);
    EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  OK(end());
  OK(begin(CU_STREAM_CAPTURE_MODE_RELAXED));
  std::thread([&] {
    SIM(cuCtxSetCurrent)(context);
    EXPECT_EQ(end(), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(end(), CUDA_ERROR_ILLEGAL_STATE);
}

TEST_F(CaptureTest, UnsafeCallsInvalidateAGlobalCapture) {
  CUdeviceptr p;
  OK(begin());
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&p, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(fill(stream, at, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_TRUE(logged("is invalidated: an allocation"));

  std::function<CUresult()> calls[] = {
      [&] { return SIM(cuMemFree_v2)(at); },
      [&] { return SIM(cuCtxSynchronize)(); },
      [&] { return SIM(cuStreamSynchronize)(stream); },
      [&] { return SIM(cuStreamQuery)(stream); },
      [&] { return SIM(cuEventQuery)(join); },
      [&] { return SIM(cuMemcpyDtoD_v2)(at, at + 64, 4); },
      [&] { return SIM(cuMemsetD8_v2)(at, 1, 4); },
  };
  for (const auto& call : calls) {
    OK(begin());
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST_F(CaptureTest, ModesOfCaptureAndThread) {
  CUdeviceptr p;
  // Relaxed captures forbid nothing.
  OK(begin(CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(SIM(cuMemAlloc_v2)(&p, 64));
  OK(end());
  // A thread-local capture does not mind other threads; a global one does.
  for (auto [mode, expected] : {std::pair{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_SUCCESS},
                                std::pair{CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}}) {
    OK(begin(mode));
    std::thread([&, expected = expected] {
      SIM(cuCtxSetCurrent)(context);
      CUdeviceptr q;
      EXPECT_EQ(SIM(cuMemAlloc_v2)(&q, 64), expected);
    }).join();
    EXPECT_EQ(end(), expected == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  // A thread can step out for a while.
  OK(begin());
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(SIM(cuThreadExchangeStreamCaptureMode)(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(SIM(cuMemAlloc_v2)(&p, 64));
  OK(SIM(cuThreadExchangeStreamCaptureMode)(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(end());
}

TEST_F(CaptureTest, LegacyStreamAndBlockingStreams) {
  EXPECT_EQ(SIM(cuStreamBeginCapture_v2)(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUstream blocking;
  OK(SIM(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
  OK(SIM(cuStreamBeginCapture_v2)(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus value;
  EXPECT_EQ(SIM(cuStreamIsCapturing)(nullptr, &value), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(fill(nullptr, at, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CUgraph graph;
  EXPECT_EQ(SIM(cuStreamEndCapture)(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);
  OK(begin(CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(fill(nullptr, at, 1));  // a non-blocking stream does not mind
  OK(end());
}

TEST_F(CaptureTest, EventsAcrossTheBorder) {
  OK(SIM(cuEventRecord)(fork, other));
  OK(begin(CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(SIM(cuStreamWaitEvent)(stream, fork, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(begin(CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(SIM(cuEventRecord)(join, stream));
  EXPECT_EQ(SIM(cuEventQuery)(join), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // Two captures do not merge.
  OK(begin());
  OK(SIM(cuStreamBeginCapture_v2)(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(SIM(cuEventRecord)(join, stream));
  EXPECT_EQ(SIM(cuStreamWaitEvent)(other, join, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  CUgraph graph;
  EXPECT_EQ(SIM(cuStreamEndCapture)(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, ExternalEventsBecomeNodes) {
  EXPECT_EQ(SIM(cuEventRecordWithFlags)(join, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  OK(begin());
  OK(SIM(cuStreamWaitEvent)(stream, fork, CU_EVENT_WAIT_EXTERNAL));
  OK(fill(stream, at, 1));
  OK(SIM(cuEventRecordWithFlags)(join, stream, CU_EVENT_RECORD_EXTERNAL));
  CUgraph graph;
  OK(end(&graph));
  CUgraphNode nodes[3];
  std::size_t n = 3;
  OK(SIM(cuGraphGetNodes)(graph, nodes, &n));
  CUevent event;
  OK(SIM(cuGraphEventWaitNodeGetEvent)(nodes[0], &event));
  EXPECT_EQ(event, fork);
  OK(SIM(cuGraphEventRecordNodeGetEvent)(nodes[2], &event));
  EXPECT_EQ(event, join);
  CUgraphExec exec;
  OK(SIM(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  OK(delay(other, 20000));
  OK(SIM(cuEventRecord)(fork, other));
  OK(SIM(cuGraphLaunch)(exec, stream));
  EXPECT_EQ(SIM(cuEventQuery)(join), CUDA_ERROR_NOT_READY) << "recorded by the launch";
  OK(SIM(cuEventSynchronize)(join));
  EXPECT_EQ(SIM(cuEventQuery)(fork), CUDA_SUCCESS);
}

TEST_F(CaptureTest, InfoAndDependencies) {
  OK(begin());
  OK(fill(stream, at, 1));
  CUstreamCaptureStatus state;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies;
  const CUgraphEdgeData* data;
  std::size_t n = 0;
  OK(SIM(cuStreamGetCaptureInfo_v3)(stream, &state, &id, &graph, &dependencies, &data, &n));
  EXPECT_NE(id, 0u);
  ASSERT_EQ(n, 1u);
  CUgraphNode before = dependencies[0], added;
  OK(SIM(cuGraphAddEmptyNode)(&added, graph, &before, 1));
  OK(SIM(cuStreamUpdateCaptureDependencies_v2)(stream, &added, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(fill(stream, at, 2));
  CUgraph captured;
  OK(end(&captured));
  EXPECT_EQ(captured, graph);
  EXPECT_EQ(edges(graph), 2u);
  OK(SIM(cuStreamGetCaptureInfo_v2)(stream, &state, &id, &graph, nullptr, nullptr));
  EXPECT_EQ(state, CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureTest, ProgrammaticLaunchesLiveInTheEdge) {
  OK(begin());
  OK(fill(stream, at, 1));
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, stream, &attribute, 1};
  unsigned value = 3;
  std::uint64_t words = 1;
  void* params[] = {&at, &value, &words};
  OK(SIM(cuLaunchKernelEx)(&config, function("fill_words"), params, nullptr));
  CUgraph graph;
  OK(end(&graph));
  CUgraphNode from, to;
  CUgraphEdgeData data;
  std::size_t n = 1;
  OK(SIM(cuGraphGetEdges_v2)(graph, &from, &to, &data, &n));
  EXPECT_EQ(data.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  EXPECT_EQ(data.from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
  EXPECT_EQ(SIM(cuGraphGetEdges)(graph, &from, &to, &n), CUDA_ERROR_LOSSY_QUERY);
  CUkernelNodeAttrValue attr;
  EXPECT_EQ(SIM(cuGraphKernelNodeGetAttribute)(to, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &attr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureTest, PriorityOfTheStreamGoesIntoTheNode) {
  CUstream urgent;
  OK(SIM(cuStreamCreateWithPriority)(&urgent, CU_STREAM_NON_BLOCKING, -3));
  OK(SIM(cuStreamBeginCapture_v2)(urgent, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(fill(urgent, at, 1));
  CUgraph graph;
  OK(SIM(cuStreamEndCapture)(urgent, &graph));
  CUgraphNode node;
  std::size_t n = 1;
  OK(SIM(cuGraphGetNodes)(graph, &node, &n));
  CUkernelNodeAttrValue value;
  OK(SIM(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  EXPECT_EQ(value.priority, -3);
}

TEST_F(CaptureTest, AModuleMayBeLoadedMeanwhile) {
  OK(begin());
  CUmodule module;
  OK(SIM(cuModuleLoadData)(&module, image.data()));
  OK(end());
  OK(SIM(cuModuleUnload)(module));
}

TEST_F(CaptureTest, ADestroyedStreamEndsItsCapture) {
  CUstream short_lived;
  OK(SIM(cuStreamCreate)(&short_lived, CU_STREAM_NON_BLOCKING));
  OK(SIM(cuStreamBeginCapture_v2)(short_lived, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(fill(short_lived, at, 1));
  OK(SIM(cuStreamDestroy_v2)(short_lived));
  CUdeviceptr p;
  OK(SIM(cuMemAlloc_v2)(&p, 64));
  EXPECT_EQ(new_graphs(), 0u);
}

}  // namespace
