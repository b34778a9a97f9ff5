#include "csrc/session/input_watch.h"

#include <memory>

#include "tests/unit/session/device_fixture.h"

namespace foundry::session::testing {
namespace {

using Words = std::vector<uint32_t>;

class InputWatchTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (HasFatalFailure()) return;
    first = upload(Words{1, 2, 3, 4});
    second = upload(Words(1000, 7));
    auto made = DeviceMemory::create(driver);
    ASSERT_TRUE(made.ok());
    device = std::make_unique<DeviceMemory>(std::move(made.value()));
  }
  void write(uint64_t address, uint32_t value) {
    ASSERT_EQ(driver.cuMemcpyHtoD(address, &value, sizeof value), CUDA_SUCCESS);
  }
  foundry_range range(uint64_t address, uint64_t bytes, uint32_t state = FOUNDRY_RANGE_LIVE) {
    foundry_range made{};
    made.address = address;
    made.bytes = bytes;
    made.state = state;
    return made;
  }
  // All in one zone.
  MemoryState memory(std::vector<foundry_range> ranges, uint32_t kind = FOUNDRY_ZONE_AMBIENT) {
    foundry_zone_info zone{};
    zone.kind = kind;
    zone.granularity = 2 << 20;
    zone.base = 0x1000;
    zone.size = uint64_t{1} << 62;
    MemoryState state;
    auto map = layout::RangeMap::build(std::move(ranges));
    EXPECT_TRUE(map.ok());
    auto made = graph::MemoryMap::create({zone}, std::move(map.value()), {});
    EXPECT_TRUE(made.ok()) << made.error().text;
    state.map = std::move(made.value());
    return state;
  }

  uint64_t first = 0, second = 0;
  std::unique_ptr<DeviceMemory> device;
};

TEST_F(InputWatchTest, FindsWhatChangedAndPutsBackEither) {
  const MemoryState state = memory({range(first, 16), range(second, 4000)});
  InputWatch watch;
  ASSERT_TRUE(watch.watch(*device, state, false).ok());
  write(first + 8, 0x01000009);
  ASSERT_TRUE(watch.compare(*device, state).ok());
  ASSERT_EQ(watch.changes().size(), 1u);
  const InputWatch::Change& change = watch.changes()[0];
  EXPECT_EQ(state.map.ranges()[change.range].address, first);
  EXPECT_EQ(change.foreign(), 2u) << "bytes";
  ASSERT_TRUE(watch.put(*device, state, true).ok());
  EXPECT_EQ(download<uint32_t>(first, 4), (Words{1, 2, 3, 4}));
  ASSERT_TRUE(watch.put(*device, state, false).ok());
  EXPECT_EQ(download<uint32_t>(first, 4), (Words{1, 2, 0x01000009, 4}));
  EXPECT_TRUE(watch.compare(*device, state).ok());
  EXPECT_TRUE(watch.changes().empty()) << "what was compared is known no more";
}

TEST_F(InputWatchTest, WhatAReplayLeavesBehindItWrote) {
  const MemoryState state = memory({range(first, 16)});
  InputWatch watch;
  ASSERT_TRUE(watch.watch(*device, state, false).ok());
  write(first, 8);
  write(first + 8, 9);
  ASSERT_TRUE(watch.compare(*device, state).ok());
  InputWatch::Change& change = watch.changes().at(0);
  ASSERT_TRUE(watch.put(*device, state, false).ok());
  write(first, 8);  // the same again shows nothing
  ASSERT_TRUE(watch.note(*device, state, false).ok());
  EXPECT_FALSE(change.any_written());
  ASSERT_TRUE(watch.put(*device, state, true).ok());
  write(first, 8);  // over what was there before it does
  ASSERT_TRUE(watch.note(*device, state, true).ok());
  EXPECT_TRUE(change.any_written());
  EXPECT_EQ(change.foreign(), 1u) << "the other byte nobody wrote";
}

TEST_F(InputWatchTest, WhatEndsAsItBeganHasChanged) {
  const MemoryState state = memory({range(first, 16), range(second, 4000)});
  InputWatch watch;
  ASSERT_TRUE(watch.watch(*device, state, false).ok());
  write(first, 5);
  ASSERT_TRUE(watch.watch(*device, state, true).ok());
  write(first, 1);
  ASSERT_TRUE(watch.watch(*device, state, false).ok());
  ASSERT_TRUE(watch.compare(*device, state).ok());
  ASSERT_EQ(watch.changes().size(), 1u);
  EXPECT_EQ(values_of<uint32_t>(watch.changes()[0].earlier), (Words{5, 2, 3, 4}));
}

TEST_F(InputWatchTest, TheFirstContentOfARangeCountsWhereItDiffers) {
  const MemoryState state = memory({range(first, 16)});
  InputWatch watch;
  ASSERT_TRUE(watch.watch(*device, state, false).ok());
  write(first, 5);
  ASSERT_TRUE(watch.watch(*device, state, false).ok());
  ASSERT_TRUE(watch.compare(*device, state).ok());
  EXPECT_EQ(watch.changes().size(), 1u);
}

TEST_F(InputWatchTest, ARangeThatWasDividedAnewIsAnotherOne) {
  InputWatch watch;
  ASSERT_TRUE(watch.watch(*device, memory({range(first, 16), range(second, 4000)}), false).ok());
  const MemoryState later = memory({range(first, 8), range(second, 4000)});
  write(first, 5);
  InputWatch same = watch;
  ASSERT_TRUE(same.compare(*device, later).ok());
  EXPECT_TRUE(same.changes().empty());
  ASSERT_TRUE(watch.watch(*device, later, false).ok());
  write(first, 6);
  ASSERT_TRUE(watch.compare(*device, later).ok());
  ASSERT_EQ(watch.changes().size(), 1u);
  EXPECT_EQ(watch.changes()[0].now.size(), 8u);
}

// Nothing lies at these addresses: they are never read.
TEST_F(InputWatchTest, LooksAtNothingElse) {
  InputWatch watch;
  EXPECT_TRUE(watch.watch(*device, memory({range(0x2000, 16)}, FOUNDRY_ZONE_GRAPHS), false).ok());
  EXPECT_TRUE(watch.watch(*device, memory({range(0x2000, 16)}, FOUNDRY_ZONE_REBUILT), false).ok());
  EXPECT_TRUE(watch.watch(*device, memory({range(0x2000, 16, FOUNDRY_RANGE_QUARANTINED)}), false).ok());
  EXPECT_TRUE(watch.watch(*device, memory({range(0x2000, kMostWatchedRange + 1)}), false).ok());
  EXPECT_FALSE(watch.watch(*device, memory({range(0x2000, 16)}), false).ok());
}

}  // namespace
}  // namespace foundry::session::testing
