// Frees, quarantine, captures that put them off, out of memory, pins.
#include <gmock/gmock.h>

#include <algorithm>

#include "csrc/base/text.h"
#include "tests/unit/layout/fixture.h"

namespace foundry::layout::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(ZonesTest, FreedMemoryIsQuarantined) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  const uint64_t x = alloc(a, 3 * kMiB), y = alloc(a, 8), z = alloc(a, 16);
  EXPECT_OK(zones.free(x));
  EXPECT_OK(zones.free(y));
  EXPECT_EQ(state(x), FOUNDRY_RANGE_QUARANTINED);
  EXPECT_TRUE(driver.accessible(x, 0));
  EXPECT_EQ(info(a).quarantined_bytes, 3 * kMiB + 8);
  EXPECT_EQ(info(a).live_bytes, 16u);
  EXPECT_EQ(driver.calls("cuCtxSynchronize"), 0);
  EXPECT_NE(alloc(a, 3 * kMiB), x);
  EXPECT_OK(zones.release_quarantine(a));
  EXPECT_EQ(state(x), FOUNDRY_RANGE_RELEASED);
  EXPECT_EQ(state(y), FOUNDRY_RANGE_RELEASED);
  EXPECT_FALSE(driver.accessible(x, 0));
  EXPECT_TRUE(driver.accessible(y, 0));  // z lives in the same chunk
  EXPECT_EQ(info(a).quarantined_bytes, 0u);
  EXPECT_NE(alloc(a, 8), y);
  EXPECT_OK(zones.free(z));
  EXPECT_OK(zones.free(zones.find(z + 512)->address));
  EXPECT_OK(zones.release_quarantine(FOUNDRY_NO_ZONE));
  EXPECT_FALSE(driver.accessible(z, 0));
  EXPECT_GE(alloc(a, 8), x + 10 * kMiB);  // a new chunk, not the unmapped one
}

TEST_F(ZonesTest, QuarantineOfOneZoneOnly) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT), b = open("graphs", FOUNDRY_ZONE_GRAPHS);
  const uint64_t x = alloc(a, 2 * kMiB), y = alloc(b, 2 * kMiB);
  EXPECT_OK(zones.free(x));
  EXPECT_OK(zones.free(y));
  EXPECT_OK(zones.release_quarantine(b));
  EXPECT_EQ(state(x), FOUNDRY_RANGE_QUARANTINED);
  EXPECT_EQ(state(y), FOUNDRY_RANGE_RELEASED);
  EXPECT_EQ(zones.release_quarantine(9).error().kind, ErrorKind::invalid);
}

TEST_F(ZonesTest, RebuiltZonesUnmapAfterWaiting) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, 2 * kMiB);
  EXPECT_OK(zones.free(x));
  EXPECT_EQ(state(x), FOUNDRY_RANGE_RELEASED);
  const std::vector<std::string> log = driver.log();
  const auto waited = std::find(log.begin(), log.end(), "cuCtxSynchronize 100");
  const auto unmapped = std::find(log.begin(), log.end(), "cuMemUnmap");
  ASSERT_NE(waited, log.end());
  EXPECT_LT(waited, unmapped);
  EXPECT_NE(unmapped, log.end());
  EXPECT_EQ(alloc(a, 2 * kMiB), x + 2 * kMiB);
}

TEST_F(ZonesTest, WrongFreesSayWhatIsKnown) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, 3 * kMiB);
  const auto text = [&](uint64_t address) {
    const Status freed = zones.free(address);
    EXPECT_FALSE(freed.ok());
    EXPECT_EQ(freed.error().kind, ErrorKind::invalid);
    return freed.error().text;
  };
  EXPECT_THAT(text(0x1234), HasSubstr("0x1234 lies in no zone; Foundry did not allocate it"));
  EXPECT_THAT(text(x + 4096),
              HasSubstr(foundry::hex(kDefaultBase + 4096) + " lies 4096 bytes into allocation 1 (3.00 MiB, thread"));
  EXPECT_THAT(text(x + 4096), HasSubstr("of zone 'weights' on device 0, live"));
  EXPECT_THAT(text(x + kGiB), HasSubstr("where nothing was allocated; the allocation before it is 1, 3.00 MiB at " +
                                        foundry::hex(kDefaultBase)));
  EXPECT_OK(zones.free(x));
  EXPECT_THAT(text(x), HasSubstr("freed at step 2 by thread"));
  EXPECT_THAT(text(x), HasSubstr("unmapped since"));
  EXPECT_EQ(info(a).frees, 1u);
  const uint32_t b = open("ambient", FOUNDRY_ZONE_AMBIENT);
  EXPECT_THAT(text(info(b).base), HasSubstr("zone 'ambient' on device 0 where nothing was allocated"));
  const uint64_t y = alloc(b, 8);
  EXPECT_OK(zones.free(y));
  EXPECT_THAT(text(y), HasSubstr("still mapped"));
}

TEST_F(ZonesTest, OutOfMemoryReleasesTheOldestQuarantineAndRetriesOnce) {
  driver.capacity = 10 * kMiB;
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  const uint64_t first = alloc(a, 2 * kMiB), second = alloc(a, 4 * kMiB), third = alloc(a, 4 * kMiB);
  EXPECT_OK(zones.free(second));
  EXPECT_OK(zones.free(first));
  EXPECT_OK(zones.free(third));
  const uint64_t x = alloc(a, 3 * kMiB);
  EXPECT_EQ(x, third + 4 * kMiB);
  EXPECT_EQ(state(second), FOUNDRY_RANGE_RELEASED);  // freed first, and enough
  EXPECT_EQ(state(first), FOUNDRY_RANGE_QUARANTINED);
  EXPECT_EQ(state(third), FOUNDRY_RANGE_QUARANTINED);
  EXPECT_OK(zones.pin(third, 1, true));
  const int before = driver.calls("cuMemCreate");
  const Error error = alloc_error(a, 8 * kMiB);
  EXPECT_EQ(error.kind, ErrorKind::out_of_memory);
  EXPECT_EQ(error.code, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver.calls("cuMemCreate"), before + 2);
  EXPECT_EQ(state(first), FOUNDRY_RANGE_RELEASED);
  EXPECT_EQ(state(third), FOUNDRY_RANGE_QUARANTINED);  // pinned
  EXPECT_EQ(info(a).used_end, x + 4 * kMiB);
}

TEST_F(ZonesTest, OutOfMemoryWithoutQuarantineFailsAtOnce) {
  driver.capacity = 4 * kMiB;
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  alloc(a, 4 * kMiB);
  EXPECT_EQ(alloc_error(a, 2 * kMiB).kind, ErrorKind::out_of_memory);
  EXPECT_EQ(driver.calls("cuMemCreate"), 2);
  EXPECT_EQ(zones.map(a, info(a).base + kGiB, 2 * kMiB).error().kind, ErrorKind::out_of_memory);
}

TEST_F(ZonesTest, OutOfMemoryDuringACaptureSaysWhyNothingWasReleased) {
  driver.capacity = 4 * kMiB;
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  EXPECT_OK(zones.free(alloc(a, 4 * kMiB)));
  zones.capture_delta(1);
  driver.capturing = true;
  const Error error = alloc_error(a, 2 * kMiB);
  EXPECT_EQ(error.kind, ErrorKind::out_of_memory);
  EXPECT_THAT(error.text, HasSubstr("a stream capture is running"));
  EXPECT_EQ(zones.release_quarantine(a).error().kind, ErrorKind::state);
  driver.capturing = false;
  zones.capture_delta(-1);
  alloc(a, 2 * kMiB);
}

TEST_F(ZonesTest, OutOfMemoryOfAMappingReleasesQuarantineToo) {
  driver.capacity = 4 * kMiB;
  const uint32_t a = open("graphs", FOUNDRY_ZONE_GRAPHS);
  EXPECT_OK(zones.free(alloc(a, 4 * kMiB)));
  EXPECT_OK(zones.map(a, info(a).base + kGiB, 4 * kMiB));
}

TEST_F(ZonesTest, FreesDuringACaptureArePutOff) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, 2 * kMiB), y = alloc(a, 2 * kMiB);
  zones.capture_delta(1);
  zones.capture_delta(1);
  driver.capturing = true;
  EXPECT_OK(zones.free(x));
  EXPECT_EQ(state(x), FOUNDRY_RANGE_QUARANTINED);
  zones.capture_delta(-1);
  const uint64_t z = alloc(a, 2 * kMiB);
  EXPECT_OK(zones.free(y));
  EXPECT_FALSE(zones.free(x).ok());
  EXPECT_TRUE(driver.accessible(x, 0));
  driver.capturing = false;
  zones.capture_delta(-1);
  EXPECT_TRUE(driver.accessible(x, 0));
  alloc(a, 2 * kMiB);  // any call
  EXPECT_EQ(state(x), FOUNDRY_RANGE_RELEASED);
  EXPECT_EQ(state(y), FOUNDRY_RANGE_RELEASED);
  EXPECT_EQ(state(z), FOUNDRY_RANGE_LIVE);
  EXPECT_EQ(diagnoses.copy(nullptr, 0), 0u);
}

TEST_F(ZonesTest, ACaptureNobodyAnnouncedPutsFreesOffToo) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, 2 * kMiB);
  driver.fail("cuCtxSynchronize", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 0, 2);
  EXPECT_OK(zones.free(x));
  alloc(a, 2 * kMiB);
  EXPECT_EQ(state(x), FOUNDRY_RANGE_QUARANTINED);
  alloc(a, 2 * kMiB);
  EXPECT_EQ(state(x), FOUNDRY_RANGE_RELEASED);
  EXPECT_EQ(diagnoses.copy(nullptr, 0), 0u);
}

TEST_F(ZonesTest, FailedFreesAreToldAndTriedAgain) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, 2 * kMiB);
  driver.fail("cuCtxSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS, 0, 2);
  const Status freed = zones.free(x);
  ASSERT_FALSE(freed.ok());
  EXPECT_EQ(freed.error().code, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(driver.accessible(x, 0));
  EXPECT_THAT(zones.free(x).error().text, HasSubstr("still mapped"));  // the second failure is a diagnosis
  char text[200];
  EXPECT_GT(diagnoses.copy(text, sizeof text), 0u);
  EXPECT_THAT(text, HasSubstr("freed memory of device 0 stays mapped: cuCtxSynchronize failed"));
  driver.fail("cuMemUnmap", CUDA_ERROR_UNKNOWN);
  const uint64_t y = alloc(a, 2 * kMiB);
  EXPECT_TRUE(driver.accessible(x, 0));
  EXPECT_OK(zones.free(y));
  EXPECT_FALSE(driver.accessible(x, 0));
  EXPECT_EQ(info(a).mapped_bytes, 0u);
  EXPECT_EQ(info(a).quarantined_bytes, 0u);
}

TEST_F(ZonesTest, MoreCapturesEndedThanBegan) {
  zones.capture_delta(-1);
  EXPECT_FALSE(zones.capturing());
  EXPECT_GT(diagnoses.copy(nullptr, 0), 0u);
  zones.capture_delta(1);
  EXPECT_TRUE(zones.capturing());
  zones.capture_delta(-1);
}

TEST_F(ZonesTest, PinnedRangesSurviveTheirFree) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, 2 * kMiB), y = alloc(a, 2 * kMiB), z = alloc(a, 2 * kMiB);
  EXPECT_OK(zones.pin(x + kMiB, 2 * kMiB, true));  // x and y
  EXPECT_OK(zones.pin(y, 1, true));
  EXPECT_EQ(zones.find(y)->pinned, 2u);
  for (const uint64_t address : {x, y, z}) EXPECT_OK(zones.free(address));
  EXPECT_TRUE(driver.accessible(x, 0));
  EXPECT_TRUE(driver.accessible(y, 0));
  EXPECT_FALSE(driver.accessible(z, 0));
  EXPECT_OK(zones.release_quarantine(FOUNDRY_NO_ZONE));
  EXPECT_TRUE(driver.accessible(x, 0));
  EXPECT_OK(zones.pin(x + kMiB, 2 * kMiB, false));
  EXPECT_FALSE(driver.accessible(x, 0));
  EXPECT_TRUE(driver.accessible(y, 0));
  EXPECT_OK(zones.pin(y, 2 * kMiB, false));
  EXPECT_FALSE(driver.accessible(y, 0));
  EXPECT_THAT(zones.pin(z, 1, true).error().text,
              HasSubstr("unmapped since; no mapped allocation there could be pinned"));
  const uint64_t w = alloc(a, 2 * kMiB);
  EXPECT_THAT(zones.pin(w, 1, false).error().text, HasSubstr("is pinned"));
  EXPECT_EQ(zones.pin(0x1234, 1, true).error().kind, ErrorKind::invalid);
  EXPECT_EQ(zones.pin(w, 0, true).error().kind, ErrorKind::invalid);
  EXPECT_EQ(zones.pin(w, UINT64_MAX, true).error().kind, ErrorKind::invalid);
}

TEST_F(ZonesTest, AQuarantinedRangeCanStillBePinned) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  const uint64_t x = alloc(a, 8);
  EXPECT_OK(zones.free(x));
  EXPECT_OK(zones.pin(x, 8, true));
  EXPECT_OK(zones.release_quarantine(a));
  EXPECT_TRUE(driver.accessible(x, 0));
  EXPECT_OK(zones.pin(x, 8, false));
  EXPECT_EQ(state(x), FOUNDRY_RANGE_QUARANTINED);  // until somebody releases the quarantine
  EXPECT_OK(zones.release_quarantine(a));
  EXPECT_EQ(state(x), FOUNDRY_RANGE_RELEASED);
}

}  // namespace
}  // namespace foundry::layout::testing
