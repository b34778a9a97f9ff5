// Placement on LOAD: recorded allocations of rebuilt zones.
#include <gmock/gmock.h>

#include "csrc/base/text.h"
#include "tests/unit/layout/fixture.h"

namespace foundry::layout::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBase = 0x200000000000;

class ExpectTest : public ZonesTest {
 protected:
  uint32_t slot = open("weights", FOUNDRY_ZONE_REBUILT, 0, kBase, kGiB);

  Status expect(const std::vector<foundry_expectation>& list, uint64_t used_end) {
    return zones.expect(slot, list, used_end);
  }
  size_t unclaimed() { return zones.unclaimed(slot, nullptr, 0); }
};

TEST_F(ExpectTest, FirstInFirstOutPerSize) {
  EXPECT_OK(
      expect({{kBase, 2 * kMiB}, {kBase + 2 * kMiB, 20 * kMiB}, {kBase + 22 * kMiB, 2 * kMiB}}, kBase + 24 * kMiB));
  EXPECT_EQ(alloc(slot, 20 * kMiB), kBase + 2 * kMiB);  // order between sizes does not matter
  EXPECT_EQ(alloc(slot, 2 * kMiB), kBase);
  EXPECT_EQ(unclaimed(), 1u);
  EXPECT_EQ(alloc(slot, 2 * kMiB), kBase + 22 * kMiB);
  EXPECT_EQ(alloc(slot, 2 * kMiB), kBase + 24 * kMiB);  // overflow
  EXPECT_EQ(unclaimed(), 0u);
  EXPECT_EQ(info(slot).used_end, kBase + 26 * kMiB);
}

TEST_F(ExpectTest, AnAllocationMoreOrLessShiftsNothing) {
  EXPECT_OK(expect({{kBase, 4 * kMiB}, {kBase + 4 * kMiB, 6 * kMiB}}, kBase + 10 * kMiB));
  EXPECT_EQ(alloc(slot, 2 * kMiB), kBase + 10 * kMiB);  // never recorded
  EXPECT_EQ(alloc(slot, 6 * kMiB), kBase + 4 * kMiB);   // the first one is missing
  foundry_expectation left[2];
  ASSERT_EQ(zones.unclaimed(slot, left, 2), 1u);
  EXPECT_EQ(left[0].address, kBase);
  EXPECT_EQ(left[0].bytes, 4 * kMiB);
}

TEST_F(ExpectTest, ExactSizeComesBeforeTheSamePages) {
  EXPECT_OK(expect({{kBase, 100}, {kBase + 2 * kMiB, 300}, {kBase + 4 * kMiB, 300}}, kBase + 6 * kMiB));
  EXPECT_EQ(alloc(slot, 300), kBase + 2 * kMiB);
  EXPECT_EQ(alloc(slot, 200), kBase);  // none of 200 bytes: first of one page
  EXPECT_EQ(alloc(slot, 100), kBase + 4 * kMiB);
  EXPECT_EQ(alloc(slot, 300), kBase + 6 * kMiB);
}

TEST_F(ExpectTest, AlignmentPassesOverUnfitAddresses) {
  EXPECT_OK(expect({{kBase + 2 * kMiB, 2 * kMiB}, {kBase + 4 * kMiB, 2 * kMiB}}, kBase + 6 * kMiB));
  EXPECT_EQ(alloc(slot, 2 * kMiB, 4 * kMiB), kBase + 4 * kMiB);
  EXPECT_EQ(alloc(slot, 2 * kMiB), kBase + 2 * kMiB);
}

TEST_F(ExpectTest, AnAddressIsTakenOnce) {
  EXPECT_OK(expect({{kBase, 2 * kMiB}}, kBase + 2 * kMiB));
  const uint64_t x = alloc(slot, 2 * kMiB);
  EXPECT_EQ(x, kBase);
  EXPECT_OK(zones.free(x));
  EXPECT_EQ(alloc(slot, 2 * kMiB), kBase + 2 * kMiB);
}

TEST_F(ExpectTest, AFailedAllocationClaimsNothing) {
  EXPECT_OK(expect({{kBase, 2 * kMiB}}, kBase + 2 * kMiB));
  driver.fail("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  alloc_error(slot, 2 * kMiB);
  EXPECT_EQ(unclaimed(), 1u);
  EXPECT_EQ(alloc(slot, 2 * kMiB), kBase);
}

TEST_F(ExpectTest, MappedContentTakesThePlaceOfWhatWasExpected) {
  EXPECT_OK(zones.map(slot, kBase, 2 * kMiB));
  EXPECT_OK(expect({{kBase, 2 * kMiB}, {kBase + 2 * kMiB, 2 * kMiB}, {kBase + 4 * kMiB, 2 * kMiB}}, kBase + 6 * kMiB));
  EXPECT_EQ(unclaimed(), 2u);
  EXPECT_OK(zones.map(slot, kBase + 2 * kMiB, 2 * kMiB));
  EXPECT_EQ(unclaimed(), 1u);
  EXPECT_EQ(alloc(slot, 2 * kMiB), kBase + 4 * kMiB);
}

TEST_F(ExpectTest, ListsFromDiskAreChecked) {
  const std::vector<std::vector<foundry_expectation>> wrong = {
      {{kBase + 1, 8}},
      {{kBase, 0}},
      {{kBase - 2 * kMiB, 8}},
      {{kBase + 8 * kMiB, 1}},
      {{kBase + 6 * kMiB, 3 * kMiB}},
      {{kBase, UINT64_MAX}},
      {{UINT64_MAX - 2 * kMiB + 1, 2 * kMiB}},
      {{kBase, 3 * kMiB}, {kBase + 2 * kMiB, 8}},
      {{kBase + 2 * kMiB, 8}, {kBase + 4 * kMiB, 8}, {kBase + 2 * kMiB, 8}},
  };
  for (const auto& list : wrong) {
    const Status status = expect(list, kBase + 8 * kMiB);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::corrupt);
    EXPECT_THAT(status.error().text, HasSubstr("zone 'weights' on device 0: recorded allocation"));
  }
  for (const uint64_t end : {kBase - 2 * kMiB, kBase + kGiB + 2 * kMiB, kBase + 1, UINT64_MAX}) {
    EXPECT_EQ(expect({}, end).error().kind, ErrorKind::corrupt);
  }
  EXPECT_OK(expect({}, kBase + kGiB));
  EXPECT_EQ(alloc_error(slot, 1).kind, ErrorKind::out_of_memory);
}

TEST_F(ExpectTest, OnceAndBeforeTheFirstAllocationAndInRebuiltZonesOnly) {
  EXPECT_OK(expect({}, kBase));
  EXPECT_EQ(expect({}, kBase).error().kind, ErrorKind::state);
  const uint32_t other = open("kv_cache", FOUNDRY_ZONE_REBUILT);
  alloc(other, 1);
  EXPECT_EQ(zones.expect(other, {}, info(other).base).error().kind, ErrorKind::state);
  const uint32_t graphs = open("graphs", FOUNDRY_ZONE_GRAPHS);
  EXPECT_EQ(zones.expect(graphs, {}, info(graphs).base).error().kind, ErrorKind::invalid);
}

}  // namespace
}  // namespace foundry::layout::testing
