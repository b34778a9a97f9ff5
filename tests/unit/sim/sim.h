// The simulated driver for tests: loaded with dlopen, as its clients do it, and called by exact symbols.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "csrc/sim/cuda_api.h"
#include "csrc/sim/extension.h"

inline void* sim_symbol(const char* name) {
  static void* library = [] {
    void* handle = dlopen(std::getenv("SIM_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) std::fprintf(stderr, "%s\n", dlerror());
    return handle;
  }();
  void* found = dlsym(library, name);
  if (found == nullptr) std::fprintf(stderr, "the simulated driver does not export %s\n", name);
  return found;
}

// SIM(cuMemAlloc_v2)(&pointer, bytes)
#define SIM(name) reinterpret_cast<decltype(&::name)>(::sim_symbol(#name))
#define OK(call) ASSERT_EQ((call), CUDA_SUCCESS) << sim_log()

inline std::string sim_log() {
  std::string text(SIM(foundry_sim_log_text)(nullptr, 0), 0);
  SIM(foundry_sim_log_text)(text.data(), text.size());
  text.resize(text.size() - 1);
  return text;
}

inline std::vector<char> file_of(const char* variable) {
  const char* path = std::getenv(variable);
  if (path == nullptr) return {};
  std::ifstream file(path, std::ios::binary);
  return std::vector<char>((std::istreambuf_iterator<char>(file)), {});
}

// A current primary context, and no leftovers of it afterwards.
class SimTest : public ::testing::Test {
 protected:
  void SetUp() override {
    OK(SIM(cuInit)(0));
    SIM(foundry_sim_set_faults)("");
    SIM(foundry_sim_set_traps)("");
    SIM(foundry_sim_log_clear)();
    OK(SIM(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(SIM(cuCtxSetCurrent)(context));
    OK(SIM(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    graphs_before_ = SIM(foundry_sim_live)("graph");
    nodes_before_ = SIM(foundry_sim_live)("node");
  }
  void TearDown() override {
    SIM(foundry_sim_set_faults)("");
    OK(SIM(cuDevicePrimaryCtxReset_v2)(0));
    OK(SIM(cuCtxSetCurrent)(nullptr));
  }

  CUdeviceptr memory(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(SIM(cuMemAlloc_v2)(&address, bytes), CUDA_SUCCESS) << sim_log();
    return address;
  }
  template <class T = int>
  T read(CUdeviceptr address, std::size_t index = 0) {
    T value{};
    EXPECT_EQ(SIM(cuMemcpyDtoH_v2)(&value, address + index * sizeof(T), sizeof value), CUDA_SUCCESS) << sim_log();
    return value;
  }
  template <class T>
  void write(CUdeviceptr address, T value) {
    EXPECT_EQ(SIM(cuMemcpyHtoD_v2)(address, &value, sizeof value), CUDA_SUCCESS) << sim_log();
  }
  // Graphs belong to no context: what earlier tests left does not count.
  std::uint64_t new_graphs() { return SIM(foundry_sim_live)("graph") - graphs_before_; }
  std::uint64_t new_nodes() { return SIM(foundry_sim_live)("node") - nodes_before_; }
  bool logged(const char* text) { return sim_log().find(text) != std::string::npos; }

  CUcontext context = nullptr;
  CUstream stream = nullptr;

 private:
  std::uint64_t graphs_before_ = 0, nodes_before_ = 0;
};

// With the "assorted" image loaded as a library.
class CodeTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    image = file_of("ASSORTED");
    ASSERT_FALSE(image.empty());
    OK(SIM(cuLibraryLoadData)(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  void TearDown() override {
    SIM(cuLibraryUnload)(library);
    SimTest::TearDown();
  }
  CUkernel kernel(const char* name) {
    CUkernel found = nullptr;
    EXPECT_EQ(SIM(cuLibraryGetKernel)(&found, library, name), CUDA_SUCCESS) << sim_log();
    return found;
  }
  CUfunction function(const char* name) {
    CUfunction found = nullptr;
    EXPECT_EQ(SIM(cuKernelGetFunction)(&found, kernel(name)), CUDA_SUCCESS) << sim_log();
    return found;
  }
  template <class... Args>
  CUresult launch(CUstream on, const char* name, Args... args) {
    void* params[] = {&args..., nullptr};
    return SIM(cuLaunchKernel)(function(name), 1, 1, 1, 32, 1, 1, 0, on, params, nullptr);
  }
  CUresult fill(CUstream on, CUdeviceptr to, unsigned value, std::uint64_t count = 1) {
    return launch(on, "fill_words", to, value, count);
  }
  CUresult delay(CUstream on, unsigned microseconds) { return launch(on, "delay", microseconds); }

  std::vector<char> image;
  CUlibrary library = nullptr;
};
