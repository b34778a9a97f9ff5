// Zones on whatever libcuda.so.1 the loader finds: the simulated driver, or a real one.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/layout/zones.h"

namespace foundry::layout::testing {
namespace {

constexpr uint64_t kMiB = 1024 * 1024;

#define ASSERT_CU(call) ASSERT_EQ(call, CUDA_SUCCESS) << #call
#define EXPECT_OK(expression)                                            \
  do {                                                                   \
    const ::foundry::Status expect_ok_status = (expression);             \
    EXPECT_TRUE(expect_ok_status.ok()) << expect_ok_status.error().text; \
  } while (false)

class AnyDriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = driver::Driver::open();
    ASSERT_TRUE(opened.ok()) << opened.error().text;
    driver = opened.value();
    ASSERT_CU(driver.cuInit(0));
    const auto windows = Windows::from_environment();
    ASSERT_TRUE(windows.ok()) << windows.error().text;
    zones.emplace(driver, journal, diagnoses, windows.value());
  }
  void TearDown() override {
    if (zones) EXPECT_OK(zones->close_all());
  }
  void make_current() {
    CUdevice device = 0;
    CUcontext primary = nullptr;
    ASSERT_CU(driver.cuDeviceGet(&device, 0));
    ASSERT_CU(driver.cuDevicePrimaryCtxRetain(&primary, device));
    ASSERT_CU(driver.cuCtxSetCurrent(primary));
  }
  uint32_t open(const char* name, uint32_t kind, uint64_t base = 0) {
    const auto slot = zones->open(0, name, kind, base, 0);
    EXPECT_TRUE(slot.ok()) << slot.error().text;
    return slot.ok() ? slot.value() : FOUNDRY_NO_ZONE;
  }
  uint64_t alloc(uint32_t slot, uint64_t bytes) {
    AllocRequest request;
    request.bytes = bytes;
    const auto address = zones->alloc(slot, request);
    EXPECT_TRUE(address.ok()) << address.error().text;
    return address.ok() ? address.value() : 0;
  }
  // Writes and reads back the first and last word.
  void use(uint64_t address, uint64_t bytes) {
    for (const uint64_t at : {address, address + bytes - 8}) {
      const uint64_t in = at ^ 0x5a5a5a5a5a5a5a5a;
      uint64_t out = 0;
      ASSERT_CU(driver.cuMemcpyHtoD(at, &in, sizeof in));
      ASSERT_CU(driver.cuMemcpyDtoH(&out, at, sizeof out));
      ASSERT_EQ(in, out) << hex(at);
    }
  }

  driver::Driver driver;
  Journal journal;
  Diagnoses diagnoses;
  std::optional<Zones> zones;
};

TEST_F(AnyDriverTest, MemoryOfZonesIsOrdinaryMemory) {
  make_current();
  const uint32_t ambient = open("ambient", FOUNDRY_ZONE_AMBIENT), weights = open("weights", FOUNDRY_ZONE_REBUILT);
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{1000}, 3 * kMiB, 20 * kMiB}) {
    for (const uint32_t slot : {ambient, weights}) {
      const uint64_t address = alloc(slot, bytes);
      EXPECT_TRUE(zones->in_zone(address));
      use(address, bytes);
    }
  }
  const uint64_t x = alloc(weights, 2 * kMiB);
  EXPECT_OK(zones->free(x));
  const uint64_t out = 0;
  EXPECT_NE(driver.cuMemcpyHtoD(x, &out, sizeof out), CUDA_SUCCESS);  // unmapped
}

TEST_F(AnyDriverTest, AWindowComesBackWhereItWas) {
  const uint32_t first = open("weights", FOUNDRY_ZONE_REBUILT);
  foundry_zone_info info = {};
  ASSERT_EQ(zones->zones(&info, 1), 1u);
  alloc(first, 3 * kMiB);
  EXPECT_OK(zones->close(first));
  make_current();
  const uint32_t again = open("weights", FOUNDRY_ZONE_REBUILT, info.base);
  EXPECT_OK(
      zones->expect(again, std::vector<foundry_expectation>{{info.base + 8 * kMiB, 3 * kMiB}}, info.base + 12 * kMiB));
  EXPECT_EQ(alloc(again, 3 * kMiB), info.base + 8 * kMiB);
  use(info.base + 8 * kMiB, 3 * kMiB);
  EXPECT_OK(zones->map(again, info.base, 8 * kMiB));
  use(info.base, 8 * kMiB);
  EXPECT_OK(zones->unmap(info.base));
  EXPECT_OK(zones->map(again, info.base, 4 * kMiB));
  use(info.base, 4 * kMiB);
  // Somebody else's reservation is named, nothing is left behind.
  Zones other(driver, journal, diagnoses, Windows{});
  const auto refused = other.open(0, "weights", FOUNDRY_ZONE_REBUILT, info.base, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::mismatch);
  EXPECT_EQ(other.zones(nullptr, 0), 0u);
}

TEST_F(AnyDriverTest, SixteenWindowsFit) {
  for (int i = 0; i < 16; ++i) alloc(open(("zone" + std::to_string(i)).c_str(), FOUNDRY_ZONE_PRIVATE), 1);
  EXPECT_EQ(zones->zones(nullptr, 0), 16u);
}

TEST_F(AnyDriverTest, ACaptureSurvivesAllocationsAndFrees) {
  make_current();
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto begin = reinterpret_cast<PFN_cuStreamBeginCapture_v10010>(dlsym(library, "cuStreamBeginCapture_v2"));
  const auto end = reinterpret_cast<PFN_cuStreamEndCapture_v10000>(dlsym(library, "cuStreamEndCapture"));
  ASSERT_TRUE(begin != nullptr && end != nullptr);
  const uint32_t weights = open("weights", FOUNDRY_ZONE_REBUILT), graphs = open("graphs", FOUNDRY_ZONE_GRAPHS);
  const uint64_t x = alloc(weights, 2 * kMiB);
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  ASSERT_CU(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  zones->capture_delta(1);
  ASSERT_CU(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));  // the strictest: anything unsafe anywhere invalidates it
  const uint64_t scratch = alloc(graphs, 2 * kMiB);
  ASSERT_CU(driver.cuMemsetD8Async(scratch, 7, 2 * kMiB, stream));
  EXPECT_OK(zones->free(x));
  EXPECT_OK(zones->free(alloc(graphs, kMiB)));
  EXPECT_OK(zones->map(graphs, scratch + 1024 * kMiB, 2 * kMiB));
  EXPECT_EQ(zones->find(x)->state, FOUNDRY_RANGE_QUARANTINED);
  ASSERT_CU(end(stream, &graph));
  zones->capture_delta(-1);
  size_t nodes = 0;
  ASSERT_CU(driver.cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
  CUgraphExec exec = nullptr;
  ASSERT_CU(driver.cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CU(driver.cuGraphLaunch(exec, stream));
  ASSERT_CU(driver.cuStreamSynchronize(stream));
  unsigned char last = 0;
  ASSERT_CU(driver.cuMemcpyDtoH(&last, scratch + 2 * kMiB - 1, 1));
  EXPECT_EQ(last, 7);
  EXPECT_OK(zones->release_quarantine(FOUNDRY_NO_ZONE));
  EXPECT_EQ(zones->find(x)->state, FOUNDRY_RANGE_RELEASED);
  ASSERT_CU(driver.cuGraphExecDestroy(exec));
  ASSERT_CU(driver.cuGraphDestroy(graph));
  ASSERT_CU(driver.cuStreamDestroy(stream));
}

TEST_F(AnyDriverTest, ManySmallAndLargeAllocations) {
  make_current();
  const uint32_t ambient = open("ambient", FOUNDRY_ZONE_AMBIENT);
  const auto time = [&](int count, uint64_t bytes) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) alloc(ambient, bytes);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / count;
  };
  RecordProperty("small_us", std::to_string(time(2000, 100)));
  RecordProperty("segment_us", std::to_string(time(100, 2 * kMiB)));
  const auto start = std::chrono::steady_clock::now();
  foundry_event event = {};
  for (int i = 0; i < 100000; ++i) journal.append(event);
  const double each =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 100000;
  RecordProperty("journal_us", std::to_string(each));
  EXPECT_LT(each, 2.0);
  EXPECT_EQ(journal.size(), 102100u);
}

}  // namespace
}  // namespace foundry::layout::testing
