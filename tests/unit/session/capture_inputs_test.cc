#include "csrc/session/capture_inputs.h"

#include <gmock/gmock.h>

#include <optional>

#include "tests/unit/session/device_fixture.h"

namespace foundry::session::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Words = std::vector<uint32_t>;

class CaptureInputsTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (HasFatalFailure()) return;
    auto made = DeviceMemory::create(driver);
    ASSERT_TRUE(made.ok()) << made.error().text;
    device.emplace(std::move(made).value());
    lengths = upload(Words{1, 2});
    table = upload(Words{3, 4, 5});
  }
  void TearDown() override {
    device.reset();
    DeviceTest::TearDown();
  }
  void write(uint64_t address, const Words& words) {
    ASSERT_EQ(driver.cuMemcpyHtoD(address, words.data(), 4 * words.size()), CUDA_SUCCESS);
  }
  void keep(CaptureInputs& inputs, uint32_t graph, const std::vector<TensorInfo>& tensors) {
    const Status taken = inputs.take(*device, tensors);
    ASSERT_TRUE(taken.ok()) << taken.error().text;
    inputs.keep(graph);
  }

  std::optional<DeviceMemory> device;
  uint64_t lengths = 0, table = 0;
};

TEST_F(CaptureInputsTest, EachGraphFindsWhatItsCaptureFound) {
  CaptureInputs inputs;
  const std::vector<TensorInfo> both = {tensor(lengths, 8), tensor(table, 12)};
  keep(inputs, 0, both);
  write(lengths, {7, 8});
  keep(inputs, 1, both);
  write(lengths, {0, 0});
  write(table, {0, 0, 0});
  ASSERT_TRUE(inputs.put(*device, 0).ok());
  EXPECT_THAT(download<uint32_t>(lengths, 2), ElementsAre(1, 2));
  EXPECT_THAT(download<uint32_t>(table, 3), ElementsAre(3, 4, 5));
  ASSERT_TRUE(inputs.put(*device, 1).ok());
  EXPECT_THAT(download<uint32_t>(lengths, 2), ElementsAre(7, 8));
  ASSERT_TRUE(inputs.put(*device, 9).ok()) << "a graph of which nothing was kept";
  EXPECT_THAT(download<uint32_t>(lengths, 2), ElementsAre(7, 8));
}

TEST_F(CaptureInputsTest, WhatReplaysChangeBeforeAGraphIsKeptDoesNotCount) {
  CaptureInputs inputs;
  const std::vector<TensorInfo> tensors = {tensor(lengths, 8)};
  ASSERT_TRUE(inputs.take(*device, tensors).ok());
  write(lengths, {7, 8});
  inputs.keep(0);
  inputs.keep(1);
  EXPECT_TRUE(inputs.of(1).value().empty()) << "nothing was taken for it";
  ASSERT_TRUE(inputs.put(*device, 0).ok());
  EXPECT_THAT(download<uint32_t>(lengths, 2), ElementsAre(1, 2));
  ASSERT_TRUE(inputs.take(*device, tensors).ok());
  ASSERT_TRUE(inputs.take(*device, {}).ok());  // that graph could not be saved
  inputs.keep(2);
  EXPECT_TRUE(inputs.of(2).value().empty());
}

TEST_F(CaptureInputsTest, AfterReplaysAllHoldsWhatItHeldBeforeTheFirst) {
  CaptureInputs inputs;
  keep(inputs, 0, {tensor(lengths, 4)});
  keep(inputs, 1, {tensor(lengths, 8), tensor(table, 12)});
  write(lengths, {7, 8});
  write(table, {9, 9, 9});
  ASSERT_TRUE(inputs.put_back(*device).ok()) << "there was no replay";
  EXPECT_THAT(download<uint32_t>(lengths, 2), ElementsAre(7, 8));
  ASSERT_TRUE(inputs.put(*device, 0).ok());
  ASSERT_TRUE(inputs.put(*device, 1).ok());
  write(table, {0, 0, 0});
  ASSERT_TRUE(inputs.put_back(*device).ok());
  EXPECT_THAT(download<uint32_t>(lengths, 2), ElementsAre(7, 8));
  EXPECT_THAT(download<uint32_t>(table, 3), ElementsAre(9, 9, 9));
}

TEST_F(CaptureInputsTest, OnlySmallMutableTensorsOfIntegersAreKept) {
  CaptureInputs inputs;
  keep(inputs, 1,
       {tensor(lengths, 8, archive::kMutable, "float32"), tensor(lengths, 8, archive::kConstant), tensor(lengths, 0),
        tensor(lengths, kMostCaptureInputBytes + 1)});
  EXPECT_TRUE(inputs.of(1).value().empty());
  for (const char* dtype : {"float64", "float16", "bfloat16", "float8_e4m3fn", "float4_e2m1fn_x2"}) {
    EXPECT_FALSE(CaptureInputs::takes(tensor(lengths, 8, archive::kMutable, dtype))) << dtype;
  }
  for (const char* dtype : {"int64", "uint8", "bool"}) {
    EXPECT_TRUE(CaptureInputs::takes(tensor(lengths, 8, archive::kMutable, dtype))) << dtype;
  }
  keep(inputs, 0, {tensor(lengths, 4), tensor(lengths, 8), tensor(lengths, 4)});
  const auto pieces = inputs.of(0).value();
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].bytes->size(), 8u) << "the largest of those at one address";
}

TEST_F(CaptureInputsTest, WhatDidNotChangeIsHeldOnce) {
  CaptureInputs inputs(12 + 8 + 8);
  const std::vector<TensorInfo> both = {tensor(lengths, 8), tensor(table, 12)};
  keep(inputs, 0, both);
  write(lengths, {7, 8});
  keep(inputs, 1, both);
  EXPECT_EQ(inputs.of(0).value()[1].bytes, inputs.of(1).value()[1].bytes);
  write(lengths, {9, 9});
  keep(inputs, 2, both);
  const Status full = inputs.put(*device, 2);
  ASSERT_FALSE(full.ok()) << "there was no room";
  EXPECT_EQ(full.error().kind, ErrorKind::out_of_memory);
  EXPECT_THAT(full.error().text, HasSubstr("was not kept"));
  EXPECT_TRUE(inputs.put(*device, 1).ok());
  keep(inputs, 3, both);
  EXPECT_FALSE(inputs.of(3).ok());
}

TEST_F(CaptureInputsTest, MemoryThatATensorHadEarlierIsForgotten) {
  CaptureInputs inputs;
  keep(inputs, 0, {tensor(lengths, 8), tensor(table, 12)});
  keep(inputs, 1, {tensor(table, 8)});
  ASSERT_EQ(inputs.of(1).value().size(), 1u);
  EXPECT_EQ(inputs.of(1).value()[0].bytes->size(), 8u) << "what an earlier graph had is not kept";
  const std::vector<MemoryPart> parts = {{table, 8, false}};
  inputs.keep_within(parts);
  EXPECT_TRUE(inputs.of(0).value().empty()) << "beside the part, and more than the part";
  EXPECT_EQ(inputs.of(1).value().size(), 1u);
  write(lengths, {7, 8});
  ASSERT_TRUE(inputs.put(*device, 0).ok());
  EXPECT_THAT(download<uint32_t>(lengths, 2), ElementsAre(7, 8));
}

TEST_F(CaptureInputsTest, GatheringTakesAnyNumberOfExtents) {
  Words words(3 << 20);
  for (uint32_t i = 0; i < words.size(); ++i) words[i] = i;
  const uint64_t address = upload(words);
  std::vector<Extent> extents;
  for (uint64_t i = 0; i < 12; ++i) extents.push_back({address + (i << 20), (uint64_t{1} << 20) - 4 * i});
  size_t next = 0;
  const Status done = device->gather(extents, [&](size_t index, std::span<const std::byte> bytes) {
    EXPECT_EQ(index, next++);
    const auto found = values_of<uint32_t>(bytes);
    EXPECT_EQ(found.size(), (1u << 18) - index);
    EXPECT_EQ(found.front(), index << 18);
    EXPECT_EQ(found.back(), (index << 18) + found.size() - 1);
    return success();
  });
  ASSERT_TRUE(done.ok()) << done.error().text;
  EXPECT_EQ(next, extents.size());
  const std::vector<Extent> large = {{address, DeviceMemory::kBufferBytes + 1}};
  EXPECT_FALSE(device->gather(large, [](size_t, std::span<const std::byte>) { return success(); }).ok());
}

}  // namespace
}  // namespace foundry::session::testing
