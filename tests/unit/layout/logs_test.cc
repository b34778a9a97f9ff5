// The journal, the diagnoses and the range map.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "csrc/layout/diagnoses.h"
#include "csrc/layout/journal.h"
#include "csrc/layout/range_map.h"

namespace foundry::layout {
namespace {

TEST(Journal, KeepsOrderAcrossChunks) {
  Journal journal;
  constexpr size_t kEvents = 3 * Journal::kChunkEvents + 5;
  for (size_t i = 0; i < kEvents; ++i) {
    foundry_event event = {};
    event.ordinal = i + 1;
    event.entry_point = i % 2 == 0 ? "even" : nullptr;
    journal.append(event);
  }
  std::vector<foundry_event> events(kEvents);
  EXPECT_EQ(journal.copy(0, nullptr, 0), kEvents);
  EXPECT_EQ(journal.copy(0, events.data(), events.size()), kEvents);
  for (size_t i = 0; i < kEvents; ++i) ASSERT_EQ(events[i].ordinal, i + 1);
  EXPECT_STREQ(events[0].entry_point, "even");
  EXPECT_STREQ(events[1].entry_point, "");
  foundry_event some[3] = {};
  EXPECT_EQ(journal.copy(Journal::kChunkEvents - 1, some, 2), kEvents - Journal::kChunkEvents + 1);
  EXPECT_EQ(some[0].ordinal, Journal::kChunkEvents);
  EXPECT_EQ(some[1].ordinal, Journal::kChunkEvents + 1);
  EXPECT_EQ(some[2].ordinal, 0u);
  EXPECT_EQ(journal.copy(kEvents, some, 3), 0u);
  EXPECT_EQ(journal.copy(UINT64_MAX, some, 3), 0u);
  EXPECT_EQ(journal.dropped(), 0u);
}

TEST(Journal, SwitchedOffItOnlyCounts) {
  Journal journal;
  journal.set_recording(false);
  journal.append({});
  EXPECT_EQ(journal.size(), 0u);
  EXPECT_EQ(journal.next_ordinal(), 1u);
  EXPECT_EQ(journal.next_ordinal(), 2u);
  journal.set_recording(true);
  journal.append({});
  EXPECT_EQ(journal.size(), 1u);
}

TEST(Journal, ThreadsLoseNothing) {
  Journal journal;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&journal] {
      for (int n = 0; n < 5000; ++n) {
        foundry_event event = {};
        event.ordinal = journal.next_ordinal();
        journal.append(event);
        foundry_event last;
        journal.copy(journal.size() - 1, &last, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<foundry_event> events(journal.size());
  ASSERT_EQ(journal.copy(0, events.data(), events.size()), 20000u);
  std::vector<bool> seen(20001);
  for (const foundry_event& event : events) seen.at(event.ordinal) = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 20000);
}

TEST(Diagnoses, AreJoinedOnceEachAndBounded) {
  Diagnoses diagnoses;
  char text[64];
  EXPECT_EQ(diagnoses.copy(text, sizeof text), 0u);
  EXPECT_STREQ(text, "");
  diagnoses.add("one");
  diagnoses.add("two\nlines");
  diagnoses.add("one");
  EXPECT_EQ(diagnoses.copy(text, sizeof text), 13u);
  EXPECT_STREQ(text, "one\ntwo lines");
  EXPECT_EQ(diagnoses.copy(text, 6), 13u);
  EXPECT_STREQ(text, "one\nt");
  EXPECT_EQ(diagnoses.copy(nullptr, 0), 13u);
  for (int i = 0; i < 1000; ++i) diagnoses.add("sentence " + std::to_string(i));
  std::string all(diagnoses.copy(nullptr, 0) + 1, '\0');
  diagnoses.copy(all.data(), all.size());
  EXPECT_EQ(static_cast<size_t>(std::count(all.begin(), all.end(), '\n')), Diagnoses::kMost - 1);
  EXPECT_THAT(all, ::testing::HasSubstr("\nthere were more diagnoses"));
}

foundry_range range(uint64_t address, uint64_t bytes, uint64_t mapped_bytes = 0) {
  foundry_range one = {};
  one.address = address;
  one.bytes = bytes;
  one.mapped_bytes = mapped_bytes;
  return one;
}

TEST(RangeMap, FindsTheRangeThatCoversAnAddress) {
  const RangeMap map =
      RangeMap::build({range(0x5000, 16), range(0x1000, 0x100, 0x1000), range(0x2000, 1), range(0x2200, 0x200)})
          .value();
  EXPECT_EQ(map.size(), 4u);
  EXPECT_EQ(map.find(0x1000), 0u);
  EXPECT_EQ(map.find(0x1fff), 0u);  // the rest of its own mapping
  EXPECT_EQ(map.find(0x2000), 1u);
  EXPECT_EQ(map.find(0x2001), std::nullopt);
  EXPECT_EQ(map.find(0x23ff), 2u);
  EXPECT_EQ(map.find(0x2400), std::nullopt);
  EXPECT_EQ(map.find(0xfff), std::nullopt);
  EXPECT_EQ(map.find(0x500f), 3u);
  EXPECT_EQ(map.find(UINT64_MAX), std::nullopt);
  EXPECT_EQ(map[3].address, 0x5000u);
}

TEST(RangeMap, KnowsTheNearestRange) {
  const RangeMap map = RangeMap::build({range(0x1000, 0x100), range(0x2000, 0x100)}).value();
  EXPECT_EQ(map.nearest(0), 0u);
  EXPECT_EQ(map.nearest(0x1050), 0u);
  EXPECT_EQ(map.nearest(0x1100), 0u);
  EXPECT_EQ(map.nearest(0x1f00), 1u);
  EXPECT_EQ(map.nearest(0x2050), 1u);
  EXPECT_EQ(map.nearest(UINT64_MAX), 1u);
  EXPECT_EQ(RangeMap().nearest(0), std::nullopt);
  EXPECT_EQ(RangeMap().find(0), std::nullopt);
}

TEST(RangeMap, RefusesWhatNoOwnerWouldSay) {
  for (const auto& list : std::vector<std::vector<foundry_range>>{{range(0x1000, 0)},
                                                                  {range(0x1000, 0, 0x1000)},
                                                                  {range(UINT64_MAX, 2)},
                                                                  {range(0x1000, 1, UINT64_MAX)},
                                                                  {range(0x1000, 1), range(0x1000, 1)},
                                                                  {range(0x1800, 1), range(0x1000, 1, 0x1000)}}) {
    const auto map = RangeMap::build(list);
    ASSERT_FALSE(map.ok());
    EXPECT_EQ(map.error().kind, ErrorKind::corrupt);
  }
}

}  // namespace
}  // namespace foundry::layout
