// Memory map, extents and reach.
#include <cstring>
#include <map>

#include "csrc/archive/extents.h"
#include "csrc/archive/records.h"
#include "csrc/graph/reach.h"
#include "tests/unit/graph/memory_fixture.h"

namespace foundry::graph::testing {
namespace {

using archive::Extent;
using archive::kNone;

TEST(MemoryMap, FindsZonesRangesAndEndPointers) {
  const MemoryMap map =
      memory_map({range(kAmbient, 0x200, 1), range(kAmbient + 0x200, 0x100, 2), range(kWeights + 0x1000, 64, 3)});
  EXPECT_EQ(map.zone_of(kWeights), 0u);
  EXPECT_EQ(map.zone_of(kAmbient - 1), 0u);
  EXPECT_EQ(map.zone_of(kAmbient), 1u);
  EXPECT_EQ(map.zone_of(kAmbient + kZoneBytes), kNone);
  EXPECT_EQ(map.zone_of(kWeights - 1), kNone);
  EXPECT_EQ(map.range_of(kWeights + 0x1000), 0u);
  EXPECT_EQ(map.range_of(kWeights + 0x1040), 0u);  // just behind it, nothing begins there
  EXPECT_EQ(map.range_of(kWeights + 0x1041), kNone);
  EXPECT_EQ(map.range_of(kAmbient + 0x1ff), 1u);
  EXPECT_EQ(map.range_of(kAmbient + 0x200), 2u);  // the next one begins there
  EXPECT_FALSE(map.is_materialized(0));
  EXPECT_TRUE(map.is_materialized(1));
}

TEST(MemoryMap, FindsAnchorsThatOverlap) {
  const MemoryMap map = memory_map({range(kWeights, 0x1000, 1)},
                                   {{kWeights + 0x100, 0x100, 11}, {kWeights, 0x800, 10}, {kWeights + 0x180, 8, 12}});
  const auto index_at = [&](uint64_t offset) {
    const uint32_t anchor = map.anchor_of(kWeights + offset);
    return anchor == kNone ? kNone : map.anchors()[anchor].index;
  };
  EXPECT_EQ(index_at(0), 10u);
  EXPECT_EQ(index_at(0x100), 11u);
  EXPECT_EQ(index_at(0x180), 12u);
  EXPECT_EQ(index_at(0x188), 11u);
  EXPECT_EQ(index_at(0x300), 10u);
  EXPECT_EQ(index_at(0x800), 10u);  // end pointer
  EXPECT_EQ(index_at(0x801), kNone);
}

TEST(MemoryMap, RefusesWhatIsNoMap) {
  auto overlapping = zones();
  overlapping[0].base = kWeights + 1;
  EXPECT_FALSE(MemoryMap::create(overlapping, {}, {}).ok());
  auto outside = layout::RangeMap::build({range(kAmbient + kZoneBytes, 16, 1)}).value();
  EXPECT_FALSE(MemoryMap::create(zones(), outside, {}).ok());
  auto crossing = layout::RangeMap::build({range(kAmbient + kZoneBytes - 8, 16, 1)}).value();
  EXPECT_FALSE(MemoryMap::create(zones(), crossing, {}).ok());
}

TEST(Extents, CoverPitchedBoxes) {
  archive::MemcpyRecord copy{};
  copy.source = 1000;
  copy.source_x = 4;
  copy.source_y = 2;
  copy.source_z = 1;
  copy.source_pitch = 100;
  copy.source_height = 10;
  copy.width_bytes = 20;
  copy.height = 3;
  copy.depth = 2;
  EXPECT_EQ(source_extent(copy).address, 1000u + 1000 + 200 + 4);
  EXPECT_EQ(source_extent(copy).bytes, 1000u + 200 + 20);
  copy.height = 0;
  EXPECT_EQ(source_extent(copy).bytes, 0u);
  copy.height = copy.depth = UINT64_MAX;
  EXPECT_EQ(source_extent(copy).address + source_extent(copy).bytes, UINT64_MAX);

  const archive::MemsetRecord set{0x1000, 64, 10, 3, 0, 4};
  EXPECT_EQ(extent(set).bytes, 2u * 64 + 40);
  EXPECT_TRUE((Extent{100, 50}.within(100, 50)));
  EXPECT_FALSE((Extent{100, 51}.within(100, 50)));
  EXPECT_FALSE((Extent{99, 1}.within(100, 50)));
  EXPECT_FALSE((Extent{UINT64_MAX, 8}.within(100, 50)));
}

// Device memory as a sparse map of words.
class Words {
 public:
  uint64_t& operator[](uint64_t address) { return words_[address]; }
  ReadMemory reader() {
    return [this](uint64_t address, std::span<std::byte> into) {
      reads.emplace_back(address, into.size());
      std::memset(into.data(), 0, into.size());
      for (auto word = words_.lower_bound(address); word != words_.end() && word->first + 8 <= address + into.size();
           ++word) {
        std::memcpy(into.data() + (word->first - address), &word->second, 8);
      }
      return success();
    };
  }
  std::vector<std::pair<uint64_t, size_t>> reads;

 private:
  std::map<uint64_t, uint64_t> words_;
};

TEST(Reach, FollowsPointersThroughMemoryAndStopsAtRebuiltZones) {
  const MemoryMap map =
      memory_map({range(kWeights, 0x1000, 1), range(kAmbient, 0x100, 2), range(kAmbient + 0x1000, 0x100, 3),
                  range(kAmbient + 0x2000, 0x100, 4), range(kAmbient + 0x3000, 0x100, 5),
                  range(kAmbient + 0x4000, 0x100, 6, FOUNDRY_RANGE_QUARANTINED)},
                 {{kWeights, 0x100, 42}});
  Words memory;
  memory[kAmbient + 0x10] = kAmbient + 0x1080;   // into the middle of the next range
  memory[kAmbient + 0x1000] = kWeights + 8;      // a tensor that an anchor keeps in place
  memory[kAmbient + 0x1008] = kWeights + 0x500;  // and one that none does
  memory[kAmbient + 0x1010] = kAmbient + 0x2000;
  memory[kAmbient + 0x2000] = kAmbient;           // a cycle
  memory[kAmbient + 0x2008] = kAmbient + 0x4000;  // freed
  memory[kAmbient + 0x2010] = kAmbient + 0x9000;  // never allocated
  memory[kAmbient + 0x2018] = 0x7f0012345678;     // host
  memory[kWeights] = kAmbient + 0x3000;           // content of rebuilt zones is the engine's business
  const uint32_t root[] = {1};
  auto result = reach(map, root, memory.reader());
  ASSERT_TRUE(result.ok()) << result.error().text;
  EXPECT_EQ(result->ranges, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(result->dangling_words, 2u);
  EXPECT_EQ(result->scanned_bytes, 0x300u);
  ASSERT_EQ(result->rebuilt.size(), 2u);
  EXPECT_EQ(result->rebuilt[0].holder, kAmbient + 0x1000);
  EXPECT_EQ(result->rebuilt[0].anchor, 42u);
  EXPECT_EQ(result->rebuilt[1].value, kWeights + 0x500);
  EXPECT_EQ(result->rebuilt[1].anchor, kNone);
  EXPECT_EQ(result->rebuilt[1].from, 2u);
  EXPECT_EQ(result->rebuilt[1].to, 0u);
}

TEST(Reach, ReadsBlockByBlockInBoundedPieces) {
  // One segment given as two blocks: only the one that is pointed to is reached.
  const MemoryMap map =
      memory_map({range(kAmbient, 0x1000, 1), range(kAmbient + 0x1000, 0x1003, 1), range(kAmbient + 0x3001, 0x20, 2)});
  Words memory;
  memory[kAmbient + 0x1ff8] = kAmbient + 0x3008;
  const uint32_t root[] = {1};
  ReachOptions options;
  options.chunk_bytes = 0x800;
  auto result = reach(map, root, memory.reader(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ranges, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(memory.reads, (std::vector<std::pair<uint64_t, size_t>>{
                              {kAmbient + 0x1000, 0x800}, {kAmbient + 0x1800, 0x800}, {kAmbient + 0x3008, 0x18}}));
  options.max_bytes = 0xfff;
  EXPECT_EQ(reach(map, root, memory.reader(), options).error().kind, ErrorKind::out_of_memory);
}

TEST(Reach, PassesErrorsOn) {
  const MemoryMap map = memory_map({range(kAmbient, 0x1000, 1)});
  const uint32_t root[] = {0};
  auto result = reach(map, root, [](uint64_t, std::span<std::byte>) -> Status {
    return Error{ErrorKind::driver, 700, "cuMemcpyDtoH failed"};
  });
  EXPECT_EQ(result.error().code, 700);
}

}  // namespace
}  // namespace foundry::graph::testing
