// Devices from the environment, contexts. Runs as a machine with an A100-40GB and an H100 of changed size.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/sim/sim.h"

namespace {

struct Environment : ::testing::Environment {
  Environment() {
    setenv("FOUNDRY_SIM_DEVICE", "a100-40gb,h100,h200", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
  }
};
[[maybe_unused]] const auto* environment = ::testing::AddGlobalTestEnvironment(new Environment);

int attribute(CUdevice_attribute which, CUdevice device) {
  int value = -1;
  EXPECT_EQ(SIM(cuDeviceGetAttribute)(&value, which, device), CUDA_SUCCESS);
  return value;
}

using Device = SimTest;

TEST_F(Device, PresetsAndVisibility) {
  int count = 0;
  OK(SIM(cuDeviceGetCount)(&count));
  ASSERT_EQ(count, 2);
  char name[64];
  OK(SIM(cuDeviceGetName)(name, sizeof name, 0));
  EXPECT_STREQ(name, "NVIDIA H100 80GB HBM3");
  OK(SIM(cuDeviceGetName)(name, sizeof name, 1));
  EXPECT_STREQ(name, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), 132);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1), 108);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1), 8);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 1), 163 * 1024);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1), 0);
}

TEST_F(Device, IdentityFollowsTheMachineNotTheOrdinal) {
  CUuuid zero, one;
  OK(SIM(cuDeviceGetUuid_v2)(&zero, 0));
  OK(SIM(cuDeviceGetUuid_v2)(&one, 1));
  EXPECT_EQ(zero.bytes[15], 1);
  EXPECT_EQ(one.bytes[15], 0);
  char bus[32];
  OK(SIM(cuDeviceGetPCIBusId)(bus, sizeof bus, 1));
  CUdevice back = -1;
  OK(SIM(cuDeviceGetByPCIBusId)(&back, bus));
  EXPECT_EQ(back, 1);
}

TEST_F(Device, UnknownThingsAreErrorsWithText) {
  int value;
  EXPECT_EQ(SIM(cuDeviceGetAttribute)(&value, static_cast<CUdevice_attribute>(100000), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(logged("unknown device attribute 100000"));
  CUdevice device;
  EXPECT_EQ(SIM(cuDeviceGet)(&device, 2), CUDA_ERROR_INVALID_DEVICE);
}

using Contexts = SimTest;

TEST_F(Contexts, StackPerThread) {
  CUcontext made, top;
  OK(SIM(cuCtxCreate_v4)(&made, nullptr, 0, 1));
  OK(SIM(cuCtxGetCurrent)(&top));
  EXPECT_EQ(top, made);
  CUdevice device;
  OK(SIM(cuCtxGetDevice)(&device));
  EXPECT_EQ(device, 1);
  std::thread([] {
    CUcontext other;
    EXPECT_EQ(SIM(cuCtxGetCurrent)(&other), CUDA_SUCCESS);
    EXPECT_EQ(other, nullptr);
    CUdeviceptr at;
    EXPECT_EQ(SIM(cuMemAlloc_v2)(&at, 16), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  OK(SIM(cuCtxPopCurrent_v2)(&top));
  EXPECT_EQ(top, made);
  OK(SIM(cuCtxGetCurrent)(&top));
  EXPECT_EQ(top, context);
  OK(SIM(cuCtxDestroy_v2)(made));
  EXPECT_EQ(SIM(cuCtxDestroy_v2)(made), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(SIM(cuCtxSetCurrent)(made), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Contexts, EndTakesEverythingAlong) {
  CUcontext made;
  std::uint64_t before = SIM(foundry_sim_live)("device"), streams = SIM(foundry_sim_live)("stream");
  OK(SIM(cuCtxCreate_v2)(&made, 0, 1));
  memory(1 << 20);
  CUstream s;
  CUevent e;
  OK(SIM(cuStreamCreate)(&s, 0));
  OK(SIM(cuEventCreate)(&e, 0));
  EXPECT_EQ(SIM(foundry_sim_live)("device"), before + 1);
  OK(SIM(cuCtxDestroy_v2)(made));
  EXPECT_EQ(SIM(foundry_sim_live)("device"), before);
  EXPECT_EQ(SIM(foundry_sim_live)("stream"), streams);
  EXPECT_EQ(SIM(cuStreamQuery)(s), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(logged("destroyed already"));
}

TEST_F(Contexts, PrimaryIsCounted) {
  CUcontext again;
  OK(SIM(cuDevicePrimaryCtxRetain)(&again, 0));
  EXPECT_EQ(again, context);
  OK(SIM(cuDevicePrimaryCtxRelease_v2)(0));
  CUdeviceptr at;
  OK(SIM(cuMemAlloc_v2)(&at, 16));
  OK(SIM(cuDevicePrimaryCtxRelease_v2)(0));
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&at, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  unsigned flags;
  int active;
  OK(SIM(cuDevicePrimaryCtxGetState)(0, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(SIM(cuDevicePrimaryCtxRelease_v2)(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Contexts, OneContextsStreamRefusesAnothersEvent) {
  CUcontext made;
  OK(SIM(cuCtxCreate_v2)(&made, 0, 1));
  CUevent event;
  OK(SIM(cuEventCreate)(&event, 0));
  EXPECT_EQ(SIM(cuEventRecord)(event, stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(logged("different contexts"));
  OK(SIM(cuCtxDestroy_v2)(made));
}

TEST_F(Contexts, AChildHasNoDriver) {
  pid_t child = fork();
  if (child == 0) {
    CUdeviceptr at;
    const char* text = nullptr;
    bool refused =
        SIM(cuMemAlloc_v2)(&at, 16) == CUDA_ERROR_NOT_INITIALIZED && SIM(cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED;
    bool named = SIM(cuGetErrorName)(CUDA_ERROR_NOT_INITIALIZED, &text) == CUDA_SUCCESS;
    _exit(refused && named ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  CUdeviceptr at;
  OK(SIM(cuMemAlloc_v2)(&at, 16));
}

}  // namespace
