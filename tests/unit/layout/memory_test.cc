// Allocation, recorded content, sealing, ambient routing, journal.
#include <gmock/gmock.h>

#include "csrc/base/text.h"
#include "tests/unit/layout/fixture.h"

namespace foundry::layout::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(ZonesTest, AddressesGrowAndEveryAllocationHasItsOwnMapping) {
  const uint32_t a = open("graphs", FOUNDRY_ZONE_GRAPHS);
  const uint64_t base = info(a).base;
  EXPECT_EQ(alloc(a, 1), base);
  EXPECT_EQ(alloc(a, 2 * kMiB), base + 2 * kMiB);
  EXPECT_EQ(alloc(a, 20 * kMiB + 1), base + 4 * kMiB);
  EXPECT_EQ(alloc(a, 8), base + 26 * kMiB);
  EXPECT_EQ(
      driver.mapped(),
      (std::map<uint64_t, uint64_t>{
          {base, 2 * kMiB}, {base + 2 * kMiB, 2 * kMiB}, {base + 4 * kMiB, 22 * kMiB}, {base + 26 * kMiB, 2 * kMiB}}));
  EXPECT_EQ(info(a).used_end, base + 28 * kMiB);
  EXPECT_EQ(info(a).mapped_bytes, 28 * kMiB);
  EXPECT_EQ(info(a).live_bytes, 22 * kMiB + 10);
  EXPECT_EQ(info(a).allocations, 4u);
}

TEST_F(ZonesTest, SmallAmbientAllocationsShareChunks) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  const uint64_t base = info(a).base;
  EXPECT_EQ(alloc(a, 8), base);
  EXPECT_EQ(alloc(a, 513), base + 512);
  EXPECT_EQ(alloc(a, 512), base + 1536);
  EXPECT_EQ(alloc(a, 100, 4096), base + 4096);
  EXPECT_EQ(alloc(a, kMiB), base + 2 * kMiB);      // not small
  EXPECT_EQ(alloc(a, kMiB - 1), base + 4608);      // back in the chunk
  EXPECT_EQ(alloc(a, kMiB - 1), base + 4 * kMiB);  // does not fit any more
  EXPECT_EQ(alloc(a, 8), base + 5 * kMiB);
  EXPECT_EQ(driver.mapped().size(), 3u);
  EXPECT_TRUE(driver.accessible(base + 4608 + kMiB - 2, 0));
  EXPECT_EQ(zones.find(base + 512)->mapped_bytes, 0u);
  EXPECT_EQ(zones.find(base + 512 + 512)->address, base + 512);
  EXPECT_FALSE(zones.find(base + 512 + 513).has_value());
}

TEST_F(ZonesTest, AlignmentIsHonoured) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  const uint64_t base = info(a).base;
  EXPECT_EQ(alloc(a, 2 * kMiB, 1), base);
  EXPECT_EQ(alloc(a, 2 * kMiB, 64 * kMiB), base + 64 * kMiB);
  EXPECT_EQ(alloc(a, 8, 2 * kMiB), base + 66 * kMiB);
  EXPECT_EQ(alloc(a, 8, 4 * kMiB), base + 68 * kMiB);
  for (const uint64_t wrong : {uint64_t{3}, uint64_t{kMiB + 1}}) {
    EXPECT_EQ(alloc_error(a, kMiB, wrong).kind, ErrorKind::invalid);
  }
  EXPECT_EQ(alloc_error(a, kMiB, uint64_t{1} << 63).kind, ErrorKind::out_of_memory);
  EXPECT_EQ(alloc_error(a, 0).kind, ErrorKind::invalid);
}

TEST_F(ZonesTest, OutOfAddressesIsAnOrdinaryError) {
  const uint32_t a = open("graphs", FOUNDRY_ZONE_GRAPHS, 0, 0, 8 * kMiB);
  alloc(a, 4 * kMiB);
  for (const uint64_t bytes : {4 * kMiB + 1, uint64_t{1} << 50, UINT64_MAX, UINT64_MAX - 2 * kMiB + 1}) {
    const Error error = alloc_error(a, bytes);
    EXPECT_EQ(error.kind, ErrorKind::out_of_memory);
    EXPECT_THAT(error.text, HasSubstr("zone 'graphs' on device 0: no addresses are left"));
  }
  EXPECT_EQ(alloc(a, 4 * kMiB), info(a).base + 4 * kMiB);
  EXPECT_EQ(driver.calls("cuMemCreate"), 2);
  EXPECT_EQ(info(a).used_end, info(a).base + 8 * kMiB);
  alloc_error(a, 1);
}

TEST_F(ZonesTest, EveryDriverFailureIsRolledBack) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  const uint64_t base = info(a).base;
  for (const uint64_t bytes : {uint64_t{8}, 6 * kMiB}) {
    for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemRelease"}) {
      driver.fail(call, CUDA_ERROR_INVALID_VALUE);
      const Error error = alloc_error(a, bytes);
      EXPECT_EQ(error.kind, ErrorKind::driver);
      EXPECT_EQ(error.code, CUDA_ERROR_INVALID_VALUE);
      EXPECT_THAT(error.text, HasSubstr(std::string("zone 'ambient' on device 0")));
      EXPECT_THAT(error.text, HasSubstr(std::string(call) + " failed"));
      EXPECT_TRUE(driver.mapped().empty()) << call;
      EXPECT_EQ(info(a).mapped_bytes, 0u);
      EXPECT_EQ(info(a).used_end, base);
      EXPECT_EQ(zones.ranges(a, nullptr, 0), 0u);
    }
    EXPECT_EQ(alloc(a, bytes), base);  // nothing of the failures is left
    EXPECT_OK(zones.free(ranges(a).back().address));
    EXPECT_OK(zones.close(a));
    EXPECT_EQ(open("ambient", FOUNDRY_ZONE_AMBIENT), a);
  }
}

TEST_F(ZonesTest, AFailedRollBackIsTold) {
  const uint32_t a = open("graphs", FOUNDRY_ZONE_GRAPHS);
  driver.fail("cuMemMap", CUDA_ERROR_INVALID_VALUE);
  driver.fail("cuMemRelease", CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(alloc_error(a, kMiB).text, HasSubstr("undoing it failed too: cuMemRelease failed"));
}

TEST_F(ZonesTest, RecordedContentIsMappedExactly) {
  const uint32_t a = open("graphs", FOUNDRY_ZONE_GRAPHS, 0, 0x200000000000, kGiB);
  const uint64_t base = info(a).base;
  EXPECT_OK(zones.map(a, base + 10 * kMiB, 6 * kMiB));
  EXPECT_EQ(driver.mapped(), (std::map<uint64_t, uint64_t>{{base + 10 * kMiB, 6 * kMiB}}));
  EXPECT_EQ(state(base + 15 * kMiB), FOUNDRY_RANGE_MATERIALIZED);
  for (const auto& [address, bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
           {base + 14 * kMiB, 4 * kMiB}, {base, kGiB}, {base + 12 * kMiB, 2 * kMiB}}) {
    const Status clash = zones.map(a, address, bytes);
    ASSERT_FALSE(clash.ok());
    EXPECT_EQ(clash.error().kind, ErrorKind::invalid);
    EXPECT_THAT(clash.error().text, HasSubstr("allocation 1 (6.00 MiB"));
    EXPECT_THAT(clash.error().text, HasSubstr("mapped for recorded content"));
  }
  EXPECT_OK(zones.map(a, base, 10 * kMiB));
  for (const auto& [address, bytes] :
       std::vector<std::pair<uint64_t, uint64_t>>{{base + 20 * kMiB, 0},
                                                  {base + 20 * kMiB, kMiB},
                                                  {base + 21 * kMiB, 2 * kMiB},
                                                  {base - 2 * kMiB, 4 * kMiB},
                                                  {base + kGiB - 2 * kMiB, 4 * kMiB},
                                                  {base + 20 * kMiB, UINT64_MAX - 2 * kMiB + 1},
                                                  {base + kGiB, 2 * kMiB}}) {
    EXPECT_EQ(zones.map(a, address, bytes).error().kind, ErrorKind::invalid) << hex(address) << " " << bytes;
  }
  EXPECT_EQ(alloc(a, 1), base + 16 * kMiB);  // behind everything
  EXPECT_EQ(info(a).allocations, 1u);
}

TEST_F(ZonesTest, RecordedContentIsUnmappedByUnmapOnly) {
  const uint32_t a = open("graphs", FOUNDRY_ZONE_GRAPHS);
  const uint64_t base = info(a).base;
  EXPECT_OK(zones.map(a, base, 4 * kMiB));
  EXPECT_THAT(zones.free(base).error().text, HasSubstr("mapped for recorded content; it is no live allocation"));
  EXPECT_FALSE(zones.unmap(base + 2 * kMiB).ok());
  EXPECT_FALSE(zones.unmap(0x1234).ok());
  EXPECT_OK(zones.pin(base, 1, true));
  EXPECT_OK(zones.unmap(base));
  EXPECT_TRUE(driver.accessible(base, 0));
  EXPECT_OK(zones.pin(base, 1, false));
  EXPECT_FALSE(driver.accessible(base, 0));
  EXPECT_FALSE(zones.find(base).has_value());
  EXPECT_OK(zones.map(a, base, 2 * kMiB));  // the address is free again, in other pieces
  EXPECT_OK(zones.map(a, base + 2 * kMiB, 2 * kMiB));
  zones.capture_delta(1);
  driver.capturing = true;
  EXPECT_OK(zones.unmap(base));
  EXPECT_FALSE(zones.map(a, base, 2 * kMiB).ok());
  driver.capturing = false;
  zones.capture_delta(-1);
  EXPECT_OK(zones.map(a, base, 2 * kMiB));
  const uint64_t x = alloc(a, 2 * kMiB);
  EXPECT_FALSE(zones.unmap(x).ok());
}

TEST_F(ZonesTest, MappingOverReleasedHistoryReplacesIt) {
  const uint32_t a = open("graphs", FOUNDRY_ZONE_GRAPHS);
  const uint64_t x = alloc(a, 2 * kMiB), y = alloc(a, 2 * kMiB);
  EXPECT_OK(zones.free(x));
  EXPECT_OK(zones.free(y));
  EXPECT_OK(zones.release_quarantine(a));
  EXPECT_OK(zones.map(a, x, 6 * kMiB));
  ASSERT_EQ(ranges(a).size(), 1u);
  EXPECT_EQ(ranges(a)[0].state, FOUNDRY_RANGE_MATERIALIZED);
  EXPECT_EQ(alloc(a, 1), x + 6 * kMiB);
}

TEST_F(ZonesTest, FailedMappingsAreRolledBack) {
  const uint32_t a = open("graphs", FOUNDRY_ZONE_GRAPHS);
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemRelease"}) {
    driver.fail(call, CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT(zones.map(a, info(a).base, 2 * kMiB).error().text, HasSubstr(call));
    EXPECT_TRUE(driver.mapped().empty());
  }
  EXPECT_OK(zones.map(a, info(a).base, 2 * kMiB));
}

TEST_F(ZonesTest, SealedZonesHandOutPlainMemory) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  const uint64_t kept = alloc(a, 8);
  EXPECT_OK(zones.set_ambient(0, a));
  EXPECT_EQ(zones.ambient(0), a);
  zones.seal(true);
  EXPECT_EQ(zones.ambient(0), FOUNDRY_NO_ZONE);
  const uint64_t x = alloc(a, 100), y = alloc(a, 100, 256);
  EXPECT_FALSE(zones.in_zone(x));
  EXPECT_EQ(alloc_error(a, 100, 512).kind, ErrorKind::unsupported);
  driver.fail("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(alloc_error(a, 100).kind, ErrorKind::out_of_memory);
  EXPECT_OK(zones.free(x));
  EXPECT_EQ(driver.calls("cuMemFree"), 1);
  EXPECT_EQ(zones.free(x).error().kind, ErrorKind::invalid);
  zones.capture_delta(1);
  driver.capturing = true;
  EXPECT_OK(zones.free(y));
  EXPECT_EQ(driver.calls("cuMemFree"), 1);
  driver.capturing = false;
  zones.capture_delta(-1);
  EXPECT_OK(zones.free(kept));  // settles first
  EXPECT_EQ(driver.calls("cuMemFree"), 2);
  zones.seal(false);
  EXPECT_TRUE(zones.in_zone(alloc(a, 8)));
}

TEST_F(ZonesTest, AmbientRoutingIsPerDevice) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT, 1), b = open("graphs", FOUNDRY_ZONE_GRAPHS, 1);
  EXPECT_EQ(zones.set_ambient(0, a).error().kind, ErrorKind::invalid);
  EXPECT_EQ(zones.set_ambient(1, b).error().kind, ErrorKind::invalid);
  EXPECT_EQ(zones.set_ambient(-1, a).error().kind, ErrorKind::invalid);
  EXPECT_EQ(zones.set_ambient(64, a).error().kind, ErrorKind::invalid);
  EXPECT_OK(zones.set_ambient(1, a));
  EXPECT_EQ(zones.ambient(0), FOUNDRY_NO_ZONE);
  EXPECT_EQ(zones.ambient(1), a);
  EXPECT_EQ(zones.ambient(-1), FOUNDRY_NO_ZONE);
  EXPECT_EQ(zones.ambient(64), FOUNDRY_NO_ZONE);
  EXPECT_OK(zones.close(a));
  EXPECT_EQ(zones.ambient(1), FOUNDRY_NO_ZONE);
}

TEST_F(ZonesTest, InZoneCoversTheWholeWindow) {
  const uint32_t a = open("graphs", FOUNDRY_ZONE_GRAPHS, 0, 0, kGiB), b = open("weights", FOUNDRY_ZONE_REBUILT);
  uint32_t slot = 77;
  EXPECT_TRUE(zones.in_zone(info(a).base, &slot));
  EXPECT_EQ(slot, a);
  EXPECT_TRUE(zones.in_zone(info(a).base + kGiB - 1, &slot));
  EXPECT_FALSE(zones.in_zone(info(a).base + kGiB, &slot));
  EXPECT_TRUE(zones.in_zone(info(b).base + kGiB, &slot));
  EXPECT_EQ(slot, b);
  EXPECT_FALSE(zones.in_zone(0));
}

TEST_F(ZonesTest, AllocationsAndFreesAreJournaled) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  AllocRequest request;
  request.bytes = 100;
  request.stream = 7;
  request.entry_point = "cuMemAlloc_v2";
  journal.stacks().enable(true, false);
  const uint64_t x = zones.alloc(a, request).value();
  journal.stacks().enable(false, false);
  const uint64_t y = alloc(a, 200);
  journal.stacks().enable(true, false);
  FreeRequest free;
  free.stream = 9;
  free.entry_point = "cuMemFree_v2";
  EXPECT_OK(zones.free(x, free));
  foundry_event events[4];
  ASSERT_EQ(journal.copy(0, events, 4), 3u);
  EXPECT_EQ(events[0].kind, FOUNDRY_EVENT_ALLOC);
  EXPECT_EQ(events[0].address, x);
  EXPECT_EQ(events[0].bytes, 100u);
  EXPECT_EQ(events[0].stream, 7u);
  EXPECT_EQ(events[0].stack, 1u);
  EXPECT_EQ(events[1].stack, 0u);
  EXPECT_EQ(events[2].stack, 2u);
  EXPECT_EQ(events[0].slot, a);
  EXPECT_EQ(events[0].thread, thread_id());
  EXPECT_STREQ(events[0].entry_point, "cuMemAlloc_v2");
  EXPECT_EQ(events[0].ordinal, zones.find(x)->ordinal);
  EXPECT_EQ(events[1].address, y);
  EXPECT_GT(events[1].ordinal, events[0].ordinal);
  EXPECT_EQ(events[2].kind, FOUNDRY_EVENT_FREE);
  EXPECT_EQ(events[2].ordinal, events[0].ordinal);
  EXPECT_STREQ(events[2].entry_point, "cuMemFree_v2");
  EXPECT_EQ(zones.find(x)->stream, 7u);
}

}  // namespace
}  // namespace foundry::layout::testing
