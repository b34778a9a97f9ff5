#include "csrc/session/memory_keeper.h"

#include "tests/unit/session/device_fixture.h"

namespace foundry::session::testing {
namespace {

TEST(MutableMemory, IsThatOfMutableTensorsByAddress) {
  const std::vector<TensorInfo> tensors = {tensor(0x3000, 16, archive::kMutable, "float32"), tensor(0x1000, 8),
                                           tensor(0x2000, 8, archive::kConstant), tensor(0x4000, 0)};
  const std::vector<MemoryPart> parts = mutable_memory(tensors);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].address, 0x1000u);
  EXPECT_EQ(parts[0].bytes, 8u);
  EXPECT_FALSE(parts[0].floating);
  EXPECT_EQ(parts[1].address, 0x3000u);
  EXPECT_TRUE(parts[1].floating);
}

TEST(MutableMemory, PartsThatOverlapAreOne) {
  const std::vector<TensorInfo> tensors = {tensor(0x1000, 64, archive::kMutable, "float32"), tensor(0x1010, 8),
                                           tensor(0x1030, 64, archive::kMutable, "float32"), tensor(0x1070, 8)};
  const std::vector<MemoryPart> parts = mutable_memory(tensors);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].address, 0x1000u);
  EXPECT_EQ(parts[0].bytes, 0x70u) << "the one inside ends earlier";
  EXPECT_FALSE(parts[0].floating) << "part of it holds integers";
  EXPECT_EQ(parts[1].address, 0x1070u) << "beside is not over";
}

class MemoryKeeperTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (HasFatalFailure()) return;
    small = upload(std::vector<uint32_t>{1, 2, 3, 4});
    large = upload(std::vector<uint32_t>(100000, 7));
  }
  void overwrite(uint64_t address, uint32_t value) {
    ASSERT_EQ(driver.cuMemcpyHtoD(address, &value, sizeof value), CUDA_SUCCESS);
  }
  archive::Hash128 fingerprint(const MemoryKeeper& keeper) {
    const auto hash = keeper.fingerprint();
    EXPECT_TRUE(hash.ok()) << hash.error().text;
    return hash.ok() ? hash.value() : archive::Hash128{};
  }
  static bool same(const archive::Hash128& a, const archive::Hash128& b) {
    return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
  }

  uint64_t small = 0, large = 0;
};

TEST_F(MemoryKeeperTest, PutsBackWhatWasThere) {
  MemoryKeeper keeper(driver);
  ASSERT_TRUE(keeper.keep({{large, 400000}, {small, 16}}).value().empty());
  const archive::Hash128 before = fingerprint(keeper);
  overwrite(small + 12, 9);
  overwrite(large + 399996, 9);
  EXPECT_FALSE(same(fingerprint(keeper), before));
  ASSERT_TRUE(keeper.restore().ok());
  EXPECT_TRUE(same(fingerprint(keeper), before));
  EXPECT_EQ(download<uint32_t>(small, 4), (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(download<uint32_t>(large, 100000), std::vector<uint32_t>(100000, 7));
}

TEST_F(MemoryKeeperTest, EveryPieceCounts) {
  MemoryKeeper keeper(driver);
  ASSERT_TRUE(keeper.keep({{small, 16}, {large, 8}}).ok());
  const archive::Hash128 before = fingerprint(keeper);
  overwrite(small, 2);
  const archive::Hash128 first = fingerprint(keeper);
  overwrite(small, 1);
  overwrite(large, 8);
  EXPECT_FALSE(same(first, before));
  EXPECT_FALSE(same(fingerprint(keeper), before));
}

// The address of what is too much is never read: nothing lies there.
TEST_F(MemoryKeeperTest, TakesTheSmallestFirstAndSaysWhatDidNotFit) {
  MemoryKeeper keeper(driver);
  const auto left = keeper.keep({{0x10, kMostKeptBytes}, {small, 16}, {large, 400000}});
  ASSERT_TRUE(left.ok()) << left.error().text;
  ASSERT_EQ(left.value().size(), 1u);
  EXPECT_EQ(left.value()[0].address, 0x10u);
  ASSERT_EQ(keeper.pieces().size(), 2u);
  EXPECT_EQ(keeper.pieces()[0].part.address, small);
  EXPECT_EQ(keeper.pieces()[1].part.address, large);
  // What was kept before counts, too.
  EXPECT_EQ(keeper.keep({{0x10, kMostKeptBytes - 400015}}).value().size(), 1u);
}

TEST_F(MemoryKeeperTest, MemoryThatCannotBeReadIsAnError) {
  MemoryKeeper keeper(driver);
  EXPECT_FALSE(keeper.keep({{0x10, 8}}).ok());
}

}  // namespace
}  // namespace foundry::session::testing
