// Streams, events, default streams.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/unit/sim/sim.h"

namespace {

using Streams = CodeTest;

TEST_F(Streams, KeepTheirOrderAndRunBesideTheHost) {
  CUdeviceptr at = memory(64);
  OK(delay(stream, 30000));
  OK(fill(stream, at, 7));
  EXPECT_EQ(SIM(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(SIM(cuStreamQuery)(stream), CUDA_SUCCESS);
  EXPECT_EQ(read(at), 7);
}

TEST_F(Streams, RacesAreReal) {
  CUstream other;
  OK(SIM(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
  CUdeviceptr at = memory(64);
  OK(delay(stream, 50000));
  OK(fill(stream, at, 1));
  OK(fill(other, at, 2));
  OK(SIM(cuStreamSynchronize)(other));
  int value = 0;
  OK(SIM(cuMemcpyDtoHAsync_v2)(&value, at, 4, other));
  EXPECT_EQ(value, 2) << "nothing orders the streams";
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(read(at), 1);
}

TEST_F(Streams, EventsOrderThem) {
  CUstream other;
  OK(SIM(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
  CUevent event;
  OK(SIM(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(SIM(cuEventQuery)(event), CUDA_SUCCESS) << "never recorded";
  CUdeviceptr at = memory(64);
  OK(delay(stream, 30000));
  OK(fill(stream, at, 1));
  OK(SIM(cuEventRecord)(event, stream));
  EXPECT_EQ(SIM(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
  OK(SIM(cuStreamWaitEvent)(other, event, 0));
  OK(fill(other, at, 2));
  OK(SIM(cuStreamSynchronize)(other));
  EXPECT_EQ(read(at), 2);
  OK(SIM(cuEventSynchronize)(event));
  OK(SIM(cuEventDestroy_v2)(event));
  EXPECT_EQ(SIM(cuEventDestroy_v2)(event), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Streams, EventsMeasureTime) {
  CUevent start, end;
  OK(SIM(cuEventCreate)(&start, 0));
  OK(SIM(cuEventCreate)(&end, 0));
  OK(SIM(cuEventRecord)(start, stream));
  OK(delay(stream, 20000));
  OK(SIM(cuEventRecord)(end, stream));
  float ms = 0;
  EXPECT_EQ(SIM(cuEventElapsedTime_v2)(&ms, start, end), CUDA_ERROR_NOT_READY);
  OK(SIM(cuEventSynchronize)(end));
  OK(SIM(cuEventElapsedTime_v2)(&ms, start, end));
  EXPECT_GE(ms, 19.0f);
}

TEST_F(Streams, LegacyStreamWaitsForBlockingOnesAndHoldsThemUp) {
  CUstream blocking;
  OK(SIM(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
  CUdeviceptr at = memory(64);
  OK(delay(blocking, 30000));
  OK(fill(blocking, at, 1));
  OK(fill(nullptr, at, 2));   // after blocking
  OK(fill(blocking, at, 3));  // after legacy
  OK(SIM(cuStreamSynchronize)(blocking));
  EXPECT_EQ(read(at), 3);
  OK(delay(blocking, 30000));
  OK(fill(blocking, at, 4));
  EXPECT_EQ(read(at), 4) << "a synchronous copy is on the legacy stream";
}

TEST_F(Streams, PerThreadSpellingsUseAnotherDefaultStream) {
  CUdeviceptr at = memory(64);
  unsigned microseconds = 40000;
  void* wait[] = {&microseconds};
  OK(SIM(cuLaunchKernel_ptsz)(function("delay"), 1, 1, 1, 1, 1, 1, 0, nullptr, wait, nullptr));
  EXPECT_EQ(SIM(cuStreamQuery_ptsz)(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(SIM(cuStreamQuery)(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  std::thread([&] {
    EXPECT_EQ(SIM(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    EXPECT_EQ(SIM(cuStreamQuery_ptsz)(nullptr), CUDA_SUCCESS) << "another thread has another one";
  }).join();
  OK(SIM(cuMemsetD32_v2_ptds)(at, 5, 1));
  EXPECT_EQ(read(at), 5);
}

TEST_F(Streams, HostFunctionsRunInOrderAndMayNotCallTheDriver) {
  static std::atomic<int> result{-1};
  OK(delay(stream, 10000));
  OK(SIM(cuLaunchHostFunc)(
      stream,
      [](void* seen) {
        CUdeviceptr at;
        *static_cast<int*>(seen) = 1;
        result = SIM(cuMemAlloc_v2)(&at, 16);
      },
      new int(0)));
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Streams, DestroyedStreamStillFinishesItsWork) {
  CUstream other;
  OK(SIM(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
  CUdeviceptr at = memory(64);
  OK(delay(other, 20000));
  OK(fill(other, at, 9));
  OK(SIM(cuStreamDestroy_v2)(other));
  EXPECT_EQ(fill(other, at, 1), CUDA_ERROR_INVALID_HANDLE);
  OK(SIM(cuCtxSynchronize)());
  EXPECT_EQ(read(at), 9);
}

TEST_F(Streams, FreeWaitsForTheWork) {
  CUdeviceptr at = memory(64);
  OK(delay(stream, 20000));
  OK(fill(stream, at, 9));
  OK(SIM(cuMemFree_v2)(at));  // without the wait the kernel would fault
  EXPECT_EQ(SIM(cuStreamQuery)(stream), CUDA_SUCCESS);
}

TEST_F(Streams, Properties) {
  CUstream other;
  OK(SIM(cuStreamCreateWithPriority)(&other, CU_STREAM_NON_BLOCKING, -100));
  int priority, least, greatest;
  OK(SIM(cuCtxGetStreamPriorityRange)(&least, &greatest));
  OK(SIM(cuStreamGetPriority)(other, &priority));
  EXPECT_EQ(priority, greatest);
  unsigned flags;
  OK(SIM(cuStreamGetFlags)(other, &flags));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  CUcontext of;
  OK(SIM(cuStreamGetCtx)(other, &of));
  EXPECT_EQ(of, context);
  CUstreamAttrValue value;
  OK(SIM(cuStreamGetAttribute)(other, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &value));
  EXPECT_EQ(value.memSyncDomainMap.remote, 1);
  EXPECT_EQ(SIM(cuStreamGetAttribute)(other, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
