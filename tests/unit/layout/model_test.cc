// Random calls against a naive model of the zones; the driver must hold exactly what the model says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "csrc/layout/range_map.h"
#include "tests/unit/layout/fixture.h"

namespace foundry::layout::testing {
namespace {

constexpr uint64_t kPage = 2 * kMiB;

uint64_t pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Everything kept in plain lists, every question answered by walking all of them.
struct Model {
  struct Range {
    uint64_t address, bytes, mapping;
    uint32_t zone, state, pins;
    bool eager;
  };
  struct Expected {
    uint64_t address, bytes;
    bool claimed;
  };
  struct ZoneModel {
    uint32_t kind;
    uint64_t cursor, chunk_next = 0, chunk_end = 0;
    std::vector<Expected> expected;
  };

  std::vector<ZoneModel> zones;
  std::vector<Range> ranges;
  std::map<uint64_t, uint64_t> mapped;
  bool capturing = false;

  uint64_t alloc(uint32_t index, uint64_t bytes, uint64_t alignment) {
    settle();
    ZoneModel& zone = zones[index];
    const auto up = [](uint64_t value, uint64_t to) { return (value + to - 1) / to * to; };
    if (zone.kind == FOUNDRY_ZONE_AMBIENT && bytes < kMiB && alignment <= kPage) {
      uint64_t start = up(zone.chunk_next, std::max<uint64_t>(alignment, 512));
      if (zone.chunk_end == 0 || start + bytes > zone.chunk_end) {
        start = zone.cursor;
        mapped[start] = kPage;
        zone.cursor = zone.chunk_end = start + kPage;
      }
      zone.chunk_next = start + bytes;
      ranges.push_back({start, bytes, zone.chunk_end - kPage, index, FOUNDRY_RANGE_LIVE, 0, false});
      return start;
    }
    Expected* found = nullptr;
    for (const bool exact : {true, false}) {
      for (Expected& one : zone.expected) {
        if (found != nullptr || one.claimed || (alignment != 0 && one.address % alignment != 0)) continue;
        if (exact ? one.bytes == bytes : pages(one.bytes) == pages(bytes)) found = &one;
      }
    }
    uint64_t start = up(zone.cursor, std::max(alignment, kPage));
    if (found != nullptr) {
      found->claimed = true;
      start = found->address;
    }
    mapped[start] = pages(bytes);
    zone.cursor = std::max(zone.cursor, start + pages(bytes));
    ranges.push_back({start, bytes, start, index, FOUNDRY_RANGE_LIVE, 0, false});
    return start;
  }
  void free(Range& range) {
    settle();
    range.state = FOUNDRY_RANGE_QUARANTINED;
    range.eager = zones[range.zone].kind == FOUNDRY_ZONE_REBUILT;
    settle();
  }
  void drop(Range& range) {
    range.state = FOUNDRY_RANGE_RELEASED;
    for (const Range& other : ranges) {
      if (other.mapping == range.mapping && other.state != FOUNDRY_RANGE_RELEASED) return;
    }
    mapped.erase(range.mapping);
    ZoneModel& zone = zones[range.zone];
    if (zone.chunk_end == range.mapping + kPage) zone.chunk_next = zone.chunk_end = 0;
  }
  void settle() {
    if (capturing) return;
    for (Range& range : ranges) {
      if (range.state == FOUNDRY_RANGE_QUARANTINED && range.eager && range.pins == 0) drop(range);
    }
  }
  void release() {
    for (Range& range : ranges) {
      if (range.state == FOUNDRY_RANGE_QUARANTINED && range.pins == 0) drop(range);
    }
  }
};

class ModelTest : public ZonesTest, public ::testing::WithParamInterface<unsigned> {};

TEST_P(ModelTest, ZonesDoWhatTheModelSays) {
  std::mt19937_64 random(GetParam());
  const auto below = [&](uint64_t limit) { return random() % limit; };
  Model model;
  for (const uint32_t kind : {FOUNDRY_ZONE_REBUILT, FOUNDRY_ZONE_AMBIENT, FOUNDRY_ZONE_GRAPHS}) {
    const uint32_t slot = open("zone" + std::to_string(kind), kind, kind == FOUNDRY_ZONE_GRAPHS ? 1 : 0);
    ASSERT_EQ(slot, model.zones.size());
    model.zones.push_back({kind, info(slot).base, 0, 0, {}});
  }
  // Half of what the rebuilt zone will be asked for is recorded, in random gaps.
  const std::vector<uint64_t> sizes = {8, 100, 512, 700 * kKiB, kMiB, kPage - 1, kPage, kPage + 1, 3 * kMiB, 20 * kMiB};
  std::vector<foundry_expectation> list;
  uint64_t at = model.zones[0].cursor;
  for (int i = 0; i < 60; ++i) {
    const uint64_t bytes = sizes[below(sizes.size())];
    at += below(3) * kPage;
    list.push_back({at, bytes});
    model.zones[0].expected.push_back({at, bytes, false});
    at += pages(bytes);
  }
  model.zones[0].cursor = at;
  EXPECT_OK(zones.expect(0, list, at));

  for (int step = 0; step < 1200; ++step) {
    const uint64_t choice = below(100);
    if (choice < 45) {
      const auto zone = static_cast<uint32_t>(below(3));
      const uint64_t bytes = sizes[below(sizes.size())];
      const uint64_t alignment = below(4) == 0 ? uint64_t{1} << below(24) : 0;
      ASSERT_EQ(alloc(zone, bytes, alignment), model.alloc(zone, bytes, alignment)) << "step " << step;
    } else if (choice < 85 && !model.ranges.empty()) {
      Model::Range& range = model.ranges[below(model.ranges.size())];
      const bool live = range.state == FOUNDRY_RANGE_LIVE;
      ASSERT_EQ(zones.free(range.address).ok(), live) << "step " << step;
      if (live) {
        model.free(range);
      } else {
        model.settle();
      }
    } else if (choice < 91 && !model.ranges.empty()) {
      Model::Range& range = model.ranges[below(model.ranges.size())];
      const bool pin = below(2) == 0;
      model.settle();
      const bool possible = range.state != FOUNDRY_RANGE_RELEASED && (pin || range.pins != 0);
      ASSERT_EQ(zones.pin(range.address, 1, pin).ok(), possible) << "step " << step;
      if (possible) range.pins += pin ? 1 : -1;
      model.settle();
    } else if (choice < 94) {
      ASSERT_EQ(zones.release_quarantine(FOUNDRY_NO_ZONE).ok(), !model.capturing);
      if (!model.capturing) model.release();
    } else {
      model.capturing = driver.capturing = !model.capturing;
      zones.capture_delta(model.capturing ? 1 : -1);
    }
    ASSERT_EQ(driver.mapped(), model.mapped) << "step " << step;
  }

  size_t count = 0;
  for (uint32_t zone = 0; zone < 3; ++zone) {
    uint64_t live = 0, quarantined = 0, mapped = 0;
    for (const foundry_range& range : ranges(zone)) {
      const auto same = std::find_if(model.ranges.begin(), model.ranges.end(),
                                     [&](const Model::Range& one) { return one.address == range.address; });
      ASSERT_NE(same, model.ranges.end());
      EXPECT_EQ(range.bytes, same->bytes);
      EXPECT_EQ(range.state, same->state);
      EXPECT_EQ(range.pinned, same->pins);
      if (range.state == FOUNDRY_RANGE_LIVE) live += range.bytes;
      if (range.state == FOUNDRY_RANGE_QUARANTINED) quarantined += range.bytes;
      ++count;
    }
    for (const auto& [address, bytes] : model.mapped) {
      uint32_t slot = FOUNDRY_NO_ZONE;
      if (zones.in_zone(address, &slot) && slot == zone) mapped += bytes;
    }
    EXPECT_EQ(info(zone).live_bytes, live);
    EXPECT_EQ(info(zone).quarantined_bytes, quarantined);
    EXPECT_EQ(info(zone).mapped_bytes, mapped);
    EXPECT_EQ(info(zone).used_end, model.zones[zone].cursor);
  }
  EXPECT_EQ(count, model.ranges.size());
  EXPECT_EQ(static_cast<size_t>(std::count_if(model.zones[0].expected.begin(), model.zones[0].expected.end(),
                                              [](const Model::Expected& one) { return !one.claimed; })),
            zones.unclaimed(0, nullptr, 0));

  // The snapshot finds what the model knows, also off the beginning of a range.
  std::vector<foundry_range> all;
  for (uint32_t zone = 0; zone < 3; ++zone) {
    const auto part = ranges(zone);
    all.insert(all.end(), part.begin(), part.end());
  }
  const auto map = RangeMap::build(all);
  ASSERT_TRUE(map.ok()) << map.error().text;
  for (const Model::Range& range : model.ranges) {
    const auto found = map.value().find(range.address + below(range.bytes));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(map.value()[*found].address, range.address);
  }
  driver.capturing = false;
  if (model.capturing) zones.capture_delta(-1);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, ::testing::Range(0u, 25u));

}  // namespace
}  // namespace foundry::layout::testing
