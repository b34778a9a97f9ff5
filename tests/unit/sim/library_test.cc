// Libraries, modules, functions: identity, lazy loading, variables, attributes and the rules about them, launches.
#include <thread>

#include "tests/unit/sim/sim.h"

namespace {

using Code = CodeTest;

TEST_F(Code, KernelFunctionLibraryModuleNameParameters) {
  CUkernel k = kernel("fill_words");
  CUfunction f;
  OK(SIM(cuKernelGetFunction)(&f, k));
  CUlibrary back;
  OK(SIM(cuKernelGetLibrary)(&back, k));
  EXPECT_EQ(back, library);
  CUmodule of_library, of_function;
  OK(SIM(cuLibraryGetModule)(&of_library, library));
  OK(SIM(cuFuncGetModule)(&of_function, f));
  EXPECT_EQ(of_library, of_function);
  const char *kernel_name, *function_name;
  OK(SIM(cuKernelGetName)(&kernel_name, k));
  OK(SIM(cuFuncGetName)(&function_name, f));
  EXPECT_STREQ(kernel_name, "fill_words");
  EXPECT_STREQ(function_name, "fill_words");
  std::size_t offset, size, expected[3][2] = {{0, 8}, {8, 4}, {16, 8}};
  for (int i = 0; i < 3; ++i) {
    OK(SIM(cuFuncGetParamInfo)(f, i, &offset, &size));
    EXPECT_EQ(offset, expected[i][0]);
    EXPECT_EQ(size, expected[i][1]);
    OK(SIM(cuKernelGetParamInfo)(k, i, &offset, &size));
    EXPECT_EQ(offset, expected[i][0]);
  }
  EXPECT_EQ(SIM(cuFuncGetParamInfo)(f, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
  unsigned count = 0;
  OK(SIM(cuLibraryGetKernelCount)(&count, library));
  EXPECT_GE(count, 5u);
  CUkernel missing;
  EXPECT_EQ(SIM(cuLibraryGetKernel)(&missing, library, "nothing"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Code, AKernelIsNoFunctionButForLaunches) {
  CUkernel k = kernel("fill_words");
  int value;
  EXPECT_EQ(SIM(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, reinterpret_cast<CUfunction>(k)),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(logged("is a kernel"));
  CUdeviceptr at = memory(64);
  unsigned word = 5;
  std::uint64_t count = 2;
  void* params[] = {&at, &word, &count};
  OK(SIM(cuLaunchKernel)(reinterpret_cast<CUfunction>(k), 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr));
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(read(at, 1), 5);
}

TEST_F(Code, LazyLoading) {
  CUmoduleLoadingMode mode;
  OK(SIM(cuModuleGetLoadingMode)(&mode));
  EXPECT_EQ(mode, CU_MODULE_LAZY_LOADING);
  CUmodule module;
  OK(SIM(cuModuleLoadData)(&module, image.data()));
  CUfunction f;
  OK(SIM(cuModuleGetFunction)(&f, module, "delay"));
  CUfunctionLoadingState state;
  OK(SIM(cuFuncIsLoaded)(&state, f));
  EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
  unsigned microseconds = 0;
  void* params[] = {&microseconds};
  OK(SIM(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
  OK(SIM(cuFuncIsLoaded)(&state, f));
  EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
  OK(SIM(cuModuleUnload)(module));
  EXPECT_EQ(SIM(cuModuleUnload)(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(SIM(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(SIM(foundry_sim_live)("module"), 0u);
}

TEST_F(Code, EveryLoadHasItsOwnVariables) {
  CUmodule module;
  OK(SIM(cuModuleLoadData)(&module, image.data()));
  CUdeviceptr a, b;
  std::size_t bytes;
  OK(SIM(cuModuleGetGlobal_v2)(&a, &bytes, module, "step_counter"));
  EXPECT_EQ(bytes, sizeof(int));
  OK(SIM(cuLibraryGetGlobal)(&b, &bytes, library, "step_counter"));
  EXPECT_NE(a, b);
  write(b, 41);
  CUdeviceptr out = memory(64);
  OK(launch(stream, "count_step", out));
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(read(out), 42);
  EXPECT_EQ(read(a), 0);
  EXPECT_EQ(SIM(cuModuleGetGlobal_v2)(&a, &bytes, module, "nothing"), CUDA_ERROR_NOT_FOUND);
  unsigned type;
  OK(SIM(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, b));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
}

TEST_F(Code, ALibraryServesAContextThatIsMadeAnew) {
  CUdeviceptr at;
  OK(SIM(cuLibraryGetGlobal)(&at, nullptr, library, "step_counter"));
  write(at, 7);
  image.assign(image.size(), 0);  // the client's bytes may go
  OK(SIM(cuDevicePrimaryCtxReset_v2)(0));
  OK(SIM(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(SIM(cuLibraryGetGlobal)(&at, nullptr, library, "step_counter"));
  EXPECT_EQ(read(at), 0) << "with its initial values";
}

TEST_F(Code, BadImages) {
  CUmodule module;
  EXPECT_EQ(SIM(cuModuleLoadData)(&module, "garbage that is no image"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(SIM(cuModuleLoad)(&module, "/nonexistent/file"), CUDA_ERROR_FILE_NOT_FOUND);
  CUlibrary other;
  EXPECT_NE(SIM(cuLibraryLoadData)(&other, "garbage that is no image", nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  OK(SIM(cuModuleLoad)(&module, std::getenv("ASSORTED")));
}

TEST_F(Code, LinkingOneImage) {
  CUlinkState state;
  OK(SIM(cuLinkCreate_v2)(0, nullptr, nullptr, &state));
  OK(SIM(cuLinkAddData_v2)(state, CU_JIT_INPUT_FATBINARY, image.data(), image.size(), "x", 0, nullptr, nullptr));
  void* cubin;
  std::size_t size;
  OK(SIM(cuLinkComplete)(state, &cubin, &size));
  CUmodule module;
  OK(SIM(cuModuleLoadData)(&module, cubin));
  OK(SIM(cuLinkDestroy)(state));
  EXPECT_EQ(SIM(cuLinkDestroy)(state), CUDA_ERROR_INVALID_HANDLE);
}

using Attributes = CodeTest;

TEST_F(Attributes, Defaults) {
  CUfunction f = function("probe");
  int value;
  OK(SIM(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, f));
  EXPECT_EQ(value, -1);
  OK(SIM(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f));
  EXPECT_EQ(value, 48 * 1024);
  OK(SIM(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
  EXPECT_EQ(value, 16);
  EXPECT_EQ(SIM(cuFuncGetAttribute)(&value, static_cast<CUfunction_attribute>(77), f), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuFuncSetAttribute)(f, CU_FUNC_ATTRIBUTE_NUM_REGS, 5), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Attributes, DynamicSharedMemoryAbove48KiBNeedsTheOptIn) {
  CUfunction f = function("probe");
  CUdeviceptr out = memory(256);
  void* params[] = {&out};
  auto launch_with = [&](unsigned bytes) {
    return SIM(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, bytes, stream, params, nullptr);
  };
  OK(launch_with(48 * 1024));
  EXPECT_EQ(launch_with(48 * 1024 + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(logged("its attribute permits 49152"));
  EXPECT_EQ(SIM(cuFuncSetAttribute)(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024 + 1),
            CUDA_ERROR_INVALID_VALUE);
  OK(SIM(cuFuncSetAttribute)(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024));
  OK(launch_with(100 * 1024));
  EXPECT_EQ(launch_with(100 * 1024 + 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Attributes, AKernelsAttributeReachesTheFunctionsOfItsDevice) {
  CUkernel k = kernel("probe");
  OK(SIM(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536, k, 0));
  int value;
  OK(SIM(cuKernelGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k, 0));
  EXPECT_EQ(value, 65536);
  OK(SIM(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function("probe")));
  EXPECT_EQ(value, 65536);
  OK(SIM(cuFuncSetAttribute)(function("probe"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 70000));
  OK(SIM(cuKernelGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k, 0));
  EXPECT_EQ(value, 65536) << "a function's own setting stays with it";
  EXPECT_EQ(SIM(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1, k, 3),
            CUDA_ERROR_INVALID_DEVICE);
}

class Launches : public CodeTest {
 protected:
  CUresult launch_cluster(unsigned blocks, unsigned grid) {
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {blocks, 1, 1};
    CUlaunchConfig config = {};
    config.gridDimX = grid;
    config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    void* params[] = {&out};
    return SIM(cuLaunchKernelEx)(&config, function("probe"), params, nullptr);
  }
  void SetUp() override {
    CodeTest::SetUp();
    out = memory(256);
  }
  CUdeviceptr out = 0;
};

TEST_F(Launches, TheKernelSeesItsLaunch) {
  void* params[] = {&out};
  OK(SIM(cuLaunchKernel)(function("probe"), 4, 3, 2, 8, 2, 1, 1000, stream, params, nullptr));
  OK(SIM(cuStreamSynchronize)(stream));
  int expected[] = {90, 132, 1000, 4, 3, 2, 8, 2, 1, 1, 1, 1};
  for (int i = 0; i < 12; ++i) EXPECT_EQ(read(out, i), expected[i]) << i;
}

TEST_F(Launches, ClustersAboveEightNeedTheirFlag) {
  OK(launch_cluster(8, 16));
  EXPECT_EQ(launch_cluster(16, 16), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(launch_cluster(4, 6), CUDA_ERROR_INVALID_CLUSTER_SIZE) << "must divide the grid";
  OK(SIM(cuFuncSetAttribute)(function("probe"), CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  OK(launch_cluster(16, 16));
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(read(out, 9), 16);
  EXPECT_EQ(launch_cluster(32, 32), CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

TEST_F(Launches, ArgumentsAsOneBuffer) {
  struct {
    CUdeviceptr to;
    unsigned value;
    alignas(8) std::uint64_t count;
  } buffer = {out, 77, 3};
  std::size_t size = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  OK(SIM(cuLaunchKernel)(function("fill_words"), 1, 1, 1, 32, 1, 1, 0, stream, nullptr, extra));
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(read(out, 2), 77);
  size = 20;
  EXPECT_EQ(SIM(cuLaunchKernel)(function("fill_words"), 1, 1, 1, 32, 1, 1, 0, stream, nullptr, extra),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuLaunchKernel)(function("fill_words"), 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Launches, Limits) {
  void* params[] = {&out};
  CUfunction f = function("probe");
  EXPECT_EQ(SIM(cuLaunchKernel)(f, 0, 1, 1, 1, 1, 1, 0, stream, params, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuLaunchKernel)(f, 1, 65536, 1, 1, 1, 1, 0, stream, params, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuLaunchKernel)(f, 1, 1, 1, 1025, 1, 1, 0, stream, params, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuLaunchCooperativeKernel)(f, 100000, 1, 1, 1024, 1, 1, 0, stream, params),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  OK(SIM(cuLaunchCooperativeKernel)(f, 264, 1, 1, 1024, 1, 1, 0, stream, params));
}

TEST_F(Launches, AnotherContextsFunctionIsRefused) {
  CUfunction f = function("probe");
  CUcontext made;
  OK(SIM(cuCtxCreate_v2)(&made, 0, 0));
  void* params[] = {&out};
  EXPECT_EQ(SIM(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(logged("belongs to another context than the stream"));
  OK(SIM(cuCtxDestroy_v2)(made));
}

using LaunchDeathTest = CodeTest;

TEST_F(LaunchDeathTest, AKernelThatReachesUnmappedMemoryFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        CUdeviceptr at = memory(4096);
        SIM(cuMemFree_v2)(at);
        fill(stream, at, 1);
        SIM(cuStreamSynchronize)(stream);
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(Launches, Occupancy) {
  int blocks = 0;
  OK(SIM(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, function("probe"), 1024, 0));
  EXPECT_EQ(blocks, 2);
  OK(SIM(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, function("probe"), 128, 40 * 1024));
  EXPECT_EQ(blocks, 5);
  int grid, block;
  OK(SIM(cuOccupancyMaxPotentialBlockSize)(&grid, &block, function("probe"), nullptr, 0, 0));
  EXPECT_EQ(grid * block, 2048 * 132);
}

}  // namespace
