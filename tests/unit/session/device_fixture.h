// Device memory of whatever libcuda.so.1 the loader finds: the simulated driver's, or a real one's.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/session/tensors.h"

namespace foundry::session::testing {

inline TensorInfo tensor(uint64_t address, uint64_t bytes, uint32_t flags = archive::kMutable,
                         const char* dtype = "int32") {
  TensorInfo made;
  made.address = address;
  made.bytes = bytes;
  made.flags = flags;
  made.dtype = dtype;
  return made;
}

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = driver::Driver::open();
    ASSERT_TRUE(opened.ok()) << opened.error().text;
    driver = opened.value();
    CUcontext primary = nullptr;
    ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(driver.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  }
  void TearDown() override {
    for (const CUdeviceptr address : allocated_) EXPECT_EQ(driver.cuMemFree(address), CUDA_SUCCESS);
  }

  uint64_t upload(std::span<const std::byte> bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(driver.cuMemAlloc(&address, bytes.size()), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuMemcpyHtoD(address, bytes.data(), bytes.size()), CUDA_SUCCESS);
    allocated_.push_back(address);
    return address;
  }
  template <class T>
  uint64_t upload(const std::vector<T>& values) {
    return upload(std::as_bytes(std::span(values)));
  }
  template <class T>
  std::vector<T> download(uint64_t address, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(driver.cuMemcpyDtoH(values.data(), address, count * sizeof(T)), CUDA_SUCCESS);
    return values;
  }

  driver::Driver driver;

 private:
  std::vector<CUdeviceptr> allocated_;
};

template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace foundry::session::testing
