// Where zones lie: windows, what occupies them, contexts, closing.
#include <gmock/gmock.h>

#include <cstdlib>

#include "csrc/base/text.h"
#include "csrc/layout/pages.h"
#include "tests/unit/layout/fixture.h"

namespace foundry::layout::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(ZonesTest, WindowsFollowEachOther) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint32_t b = open("kv_cache", FOUNDRY_ZONE_REBUILT);
  EXPECT_EQ(info(a).base, kDefaultBase);
  EXPECT_EQ(info(b).base, kDefaultBase + kDefaultWindow);
  EXPECT_EQ(info(a).size, uint64_t{4} << 40);
  EXPECT_EQ(info(a).granularity, 2 * kMiB);
  EXPECT_STREQ(info(b).name, "kv_cache");
  EXPECT_EQ(info(b).used_end, info(b).base);
}

TEST_F(ZonesTest, TheSameNameOnTwoDevicesIsTwoZones) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT, 0);
  const uint32_t b = open("weights", FOUNDRY_ZONE_REBUILT, 1);
  EXPECT_NE(a, b);
  const uint64_t x = alloc(a, kMiB), y = alloc(b, kMiB);
  EXPECT_TRUE(driver.accessible(x, 0));
  EXPECT_TRUE(driver.accessible(y, 1));
}

TEST_F(ZonesTest, OpeningAgainReturnsTheSlot) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  EXPECT_EQ(open("weights", FOUNDRY_ZONE_REBUILT), a);
  EXPECT_EQ(open("weights", FOUNDRY_ZONE_REBUILT, 0, info(a).base, info(a).size), a);
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), 1);
  for (const auto& wrong : {zones.open(0, "weights", FOUNDRY_ZONE_GRAPHS, 0, 0),
                            zones.open(0, "weights", FOUNDRY_ZONE_REBUILT, info(a).base + kGiB, 0),
                            zones.open(0, "weights", FOUNDRY_ZONE_REBUILT, 0, kGiB)}) {
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().kind, ErrorKind::invalid);
    EXPECT_THAT(wrong.error().text, HasSubstr("zone 'weights' on device 0 is open already as kind 1"));
  }
}

TEST_F(ZonesTest, SaveTriesFurtherWindows) {
  driver.land_elsewhere[kDefaultBase] = 0x700000000000;
  driver.fail("cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY, 1);
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  EXPECT_EQ(info(a).base, kDefaultBase + 2 * kDefaultWindow);
  EXPECT_EQ(driver.reservations(), 1u);
}

TEST_F(ZonesTest, NoFreeWindowNamesTheReason) {
  driver.fail("cuMemAddressReserve", CUDA_ERROR_UNKNOWN, 0, 1000);
  const auto slot = zones.open(0, "weights", FOUNDRY_ZONE_REBUILT, 0, 0);
  ASSERT_FALSE(slot.ok());
  EXPECT_THAT(slot.error().text, HasSubstr("zone 'weights' on device 0: no window is free"));
  EXPECT_THAT(slot.error().text, HasSubstr("cuMemAddressReserve failed"));
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), 16);
}

TEST_F(ZonesTest, LoadRefusesAnotherAddress) {
  const uint64_t base = 0x200000000000;
  driver.land_elsewhere[base] = 0x700000000000;
  const auto slot = zones.open(0, "weights", FOUNDRY_ZONE_REBUILT, base, kGiB);
  ASSERT_FALSE(slot.ok());
  EXPECT_EQ(slot.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(slot.error().text, HasSubstr("the driver placed it at 0x700000000000 instead"));
  EXPECT_EQ(driver.reservations(), 0u);
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), 1);
}

TEST_F(ZonesTest, LoadNamesTheMapsLineThatIsInTheWay) {
  // Some page of this very program stands for the intruder; a window over it is refused by the driver.
  static char here[1];
  const uint64_t page = reinterpret_cast<uint64_t>(here) & ~(2 * kMiB - 1);
  const driver::Driver table = driver.table();
  driver.fail("cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY);
  const Status refused = reserve_window(table, page, 2 * kMiB, 2 * kMiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(refused.error().text, HasSubstr("the process has mapped there: "));
  EXPECT_THAT(refused.error().text, HasSubstr(format("%llx-", static_cast<unsigned long long>(page)).substr(0, 5)));
}

TEST(Occupant, IsTheFirstOverlappingLine) {
  const std::string maps =
      "100000000000-100000200000 rw-p 00000000 00:00 0\n"
      "140000000000-140000001000 r-xp 00000000 08:01 12   /usr/lib/intruder.so\n"
      "garbage\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
  EXPECT_EQ(occupant(maps, 0x100000200000, 0x1000), "");
  EXPECT_EQ(occupant(maps, 0x100000100000, 0x1000), "100000000000-100000200000 rw-p 00000000 00:00 0");
  EXPECT_EQ(occupant(maps, 0x13fffffff000, 0x10000),
            "140000000000-140000001000 r-xp 00000000 08:01 12   /usr/lib/intruder.so");
  EXPECT_EQ(occupant(maps, 0x13fffffff000, 0x1000), "");
  EXPECT_EQ(occupant("", 0x1000, 0x1000), "");
}

TEST_F(ZonesTest, ArchivedWindowsAreChecked) {
  for (const auto& [base, size] : std::vector<std::pair<uint64_t, uint64_t>>{{0x100000000001, kGiB},
                                                                             {0x550000000000, kGiB},
                                                                             {0x540000000000, uint64_t{2} << 40},
                                                                             {0x100000000000, UINT64_MAX},
                                                                             {0x100000000000, UINT64_MAX - 4 * kMiB},
                                                                             {UINT64_MAX - 2 * kMiB + 1, kGiB},
                                                                             {0, uint64_t{5} << 40}}) {
    const auto slot = zones.open(0, "weights", FOUNDRY_ZONE_REBUILT, base, size);
    ASSERT_FALSE(slot.ok()) << hex(base) << " " << size;
    EXPECT_EQ(slot.error().kind, ErrorKind::invalid);
  }
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), 0);
  open("a", FOUNDRY_ZONE_REBUILT, 0, 0x200000000000, kGiB);
  const auto clash = zones.open(0, "b", FOUNDRY_ZONE_REBUILT, 0x200000200000, kGiB);
  ASSERT_FALSE(clash.ok());
  EXPECT_EQ(clash.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(clash.error().text, HasSubstr("is taken by zone 'a' on device 0"));
}

TEST_F(ZonesTest, BadArgumentsAreRefused) {
  for (const std::string& name : {std::string(), std::string("two\nlines"), std::string(64, 'x')}) {
    EXPECT_EQ(zones.open(0, name, FOUNDRY_ZONE_REBUILT, 0, 0).error().kind, ErrorKind::invalid);
  }
  open(std::string(63, 'x'), FOUNDRY_ZONE_REBUILT);
  EXPECT_EQ(zones.open(0, "a", 0, 0, 0).error().kind, ErrorKind::invalid);
  EXPECT_EQ(zones.open(0, "a", 5, 0, 0).error().kind, ErrorKind::invalid);
  EXPECT_THAT(zones.open(7, "a", FOUNDRY_ZONE_REBUILT, 0, 0).error().text, HasSubstr("device 7"));
  EXPECT_EQ(alloc_error(15, kMiB).kind, ErrorKind::invalid);
  EXPECT_EQ(alloc_error(FOUNDRY_NO_ZONE, kMiB).kind, ErrorKind::invalid);
}

TEST_F(ZonesTest, SixteenZonesAndNoMore) {
  for (int i = 0; i < 16; ++i) open("zone" + std::to_string(i), FOUNDRY_ZONE_PRIVATE, 0, 0, kGiB);
  const auto slot = zones.open(0, "one more", FOUNDRY_ZONE_PRIVATE, 0, kGiB);
  ASSERT_FALSE(slot.ok());
  EXPECT_EQ(slot.error().kind, ErrorKind::out_of_memory);
  EXPECT_OK(zones.close(3));
  EXPECT_EQ(open("one more", FOUNDRY_ZONE_PRIVATE, 0, 0, kGiB), 3u);
}

TEST_F(ZonesTest, GranularityComesFromTheDriver) {
  driver.granularity = 32 * kMiB;
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT, 0, 0, kGiB + 1);
  EXPECT_EQ(info(a).granularity, 32 * kMiB);
  EXPECT_EQ(info(a).size, kGiB + 32 * kMiB);
  EXPECT_EQ(alloc(a, 1), info(a).base);
  EXPECT_EQ(alloc(a, 33 * kMiB), info(a).base + 32 * kMiB);
  EXPECT_EQ(alloc(a, 1), info(a).base + 96 * kMiB);
  driver.granularity = 3 * kMiB;
  EXPECT_THAT(zones.open(0, "odd", FOUNDRY_ZONE_REBUILT, 0, 0).error().text, HasSubstr("no power of two"));
  driver.granularity = 32 * kMiB;
}

TEST_F(ZonesTest, SmallGranularityStillMeansTwoMegabytePages) {
  driver.granularity = 64 * kKiB;
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  EXPECT_EQ(info(a).granularity, 2 * kMiB);
}

TEST_F(ZonesTest, MemoryIsMadeForNetworkCardsWhereTheDeviceCan) {
  driver.rdma = true;  // the fake checks the flag of every allocation
  alloc(open("weights", FOUNDRY_ZONE_REBUILT), kMiB);
}

TEST_F(ZonesTest, ThreadsWithoutAContextUseThePrimaryOne) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  EXPECT_EQ(driver.primary_references(0), 1);  // lasts as long as the zone
  alloc(a, kMiB);
  EXPECT_EQ(driver.primary_references(0), 1);
  CUcontext current = nullptr;
  driver.table().cuCtxGetCurrent(&current);
  EXPECT_EQ(current, nullptr);
}

TEST_F(ZonesTest, AContextOfTheDeviceIsLeftAlone) {
  set_current(own_context(0));
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  EXPECT_OK(zones.free(alloc(a, kMiB)));
  EXPECT_EQ(driver.calls("cuDevicePrimaryCtxRetain"), 0);
  EXPECT_EQ(driver.calls("cuCtxSetCurrent"), 0);
  EXPECT_EQ(driver.calls("cuCtxSynchronize"), 1);
}

TEST_F(ZonesTest, AContextOfAnotherDeviceIsPutBack) {
  set_current(own_context(1));
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT, 0);
  EXPECT_TRUE(driver.accessible(alloc(a, kMiB), 0));
  CUcontext current = nullptr;
  driver.table().cuCtxGetCurrent(&current);
  EXPECT_EQ(current, own_context(1));
}

TEST_F(ZonesTest, FreesWaitForTheThreadsContextAndThePrimaryOne) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, kMiB);
  set_current(own_context(0));
  EXPECT_OK(zones.free(x));
  const std::vector<std::string> log = driver.log();
  EXPECT_THAT(log, ::testing::IsSupersetOf({"cuCtxSynchronize 200", "cuCtxSynchronize 100"}));
}

TEST_F(ZonesTest, FailedOpeningLeavesNothing) {
  driver.fail("cuDevicePrimaryCtxRetain", CUDA_ERROR_UNKNOWN, 1);
  EXPECT_FALSE(zones.open(0, "weights", FOUNDRY_ZONE_REBUILT, 0, 0).ok());
  EXPECT_EQ(driver.reservations(), 0u);
  for (const char* call : {"cuDeviceGet", "cuCtxSetCurrent", "cuMemGetAllocationGranularity"}) {
    driver.fail(call, CUDA_ERROR_UNKNOWN);
    const auto slot = zones.open(0, "weights", FOUNDRY_ZONE_REBUILT, 0, 0);
    ASSERT_FALSE(slot.ok()) << call;
    EXPECT_THAT(slot.error().text, HasSubstr(call));
  }
  EXPECT_EQ(driver.primary_references(0), 0);
}

TEST_F(ZonesTest, ClosingGivesEverythingBackAndIsIdempotent) {
  const uint32_t a = open("ambient", FOUNDRY_ZONE_AMBIENT);
  const uint64_t base = info(a).base;
  alloc(a, 100);
  const uint64_t freed = alloc(a, 3 * kMiB);
  const uint64_t pinned = alloc(a, 5 * kMiB);
  EXPECT_OK(zones.pin(pinned, 1, true));
  EXPECT_OK(zones.free(freed));
  EXPECT_OK(zones.map(a, base + kGiB, 2 * kMiB));
  EXPECT_OK(zones.close(a));
  EXPECT_TRUE(driver.mapped().empty());
  EXPECT_EQ(driver.physical(), 0u);
  EXPECT_EQ(driver.reservations(), 0u);
  EXPECT_FALSE(zones.in_zone(base));
  EXPECT_EQ(zones.zones(nullptr, 0), 0u);
  EXPECT_OK(zones.close(a));
  EXPECT_EQ(zones.close(99).error().kind, ErrorKind::invalid);
  EXPECT_OK(zones.release_quarantine(FOUNDRY_NO_ZONE));
  EXPECT_EQ(info(open("ambient", FOUNDRY_ZONE_AMBIENT)).base, base);
}

TEST_F(ZonesTest, ClosingGoesOnAfterAFailureAndCanBeRepeated) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, kMiB);
  alloc(a, kMiB);
  driver.fail("cuMemUnmap", CUDA_ERROR_UNKNOWN);
  const Status closed = zones.close(a);
  ASSERT_FALSE(closed.ok());
  EXPECT_THAT(closed.error().text, HasSubstr("zone 'weights' on device 0 (not closed completely): cuMemUnmap failed"));
  EXPECT_EQ(driver.mapped().size(), 1u);
  EXPECT_EQ(alloc_error(a, kMiB).kind, ErrorKind::state);
  EXPECT_FALSE(zones.free(x).ok());
  EXPECT_OK(zones.close(a));
  EXPECT_EQ(driver.reservations(), 0u);
}

TEST_F(ZonesTest, ABrokenContextDoesNotKeepMemoryMapped) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  alloc(a, kMiB);
  driver.fail("cuCtxSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(zones.close(a).error().text, HasSubstr("(closed): cuCtxSynchronize failed"));
  EXPECT_EQ(driver.reservations(), 0u);
}

TEST_F(ZonesTest, NothingIsClosedDuringACapture) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  alloc(a, kMiB);
  zones.capture_delta(1);
  EXPECT_EQ(zones.close(a).error().kind, ErrorKind::state);
  zones.capture_delta(-1);
  driver.fail("cuCtxSynchronize", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);  // a capture nobody told us about
  EXPECT_EQ(zones.close(a).error().kind, ErrorKind::state);
  EXPECT_EQ(driver.mapped().size(), 1u);
}

class WindowsFromEnvironment : public ::testing::Test {
 protected:
  void TearDown() override {
    unsetenv("FOUNDRY_BASE");
    unsetenv("FOUNDRY_WINDOW");
  }
};

TEST_F(WindowsFromEnvironment, MoveAndShrink) {
  EXPECT_EQ(Windows::from_environment().value().base, kDefaultBase);
  EXPECT_EQ(Windows::from_environment().value().count(), 16u);
  setenv("FOUNDRY_BASE", "0x200000000000", 1);
  EXPECT_EQ(Windows::from_environment().value().count(), 13u);  // ends below 0x5500_0000_0000
  setenv("FOUNDRY_BASE", "1000000000", 1);
  setenv("FOUNDRY_WINDOW", "400000000", 1);
  const Windows windows = Windows::from_environment().value();
  EXPECT_EQ(windows.base, 0x1000000000u);
  EXPECT_EQ(windows.bytes, 0x400000000u);
  EXPECT_EQ(windows.count(), 16u);
}

TEST_F(WindowsFromEnvironment, NonsenseIsRefused) {
  for (const char* base : {"nonsense", "0x1000x", "-200000", "1000", "550000000000", "fffffffffffffffffff", "0"}) {
    setenv("FOUNDRY_BASE", base, 1);
    const auto windows = Windows::from_environment();
    ASSERT_FALSE(windows.ok()) << base;
    EXPECT_EQ(windows.error().kind, ErrorKind::invalid);
  }
}

TEST_F(WindowsFromEnvironment, ZonesLieWhereTheySay) {
  FakeDriver driver;
  Journal journal;
  Diagnoses diagnoses;
  Zones zones(driver.table(), journal, diagnoses, Windows{0x1000000000, 16 * kGiB});
  const uint32_t a = zones.open(0, "a", FOUNDRY_ZONE_REBUILT, 0, 0).value();
  foundry_zone_info info[1];
  ASSERT_EQ(zones.zones(info, 1), 1u);
  EXPECT_EQ(info[0].base, 0x1000000000u);
  EXPECT_EQ(info[0].size, 16 * kGiB);
  EXPECT_OK(zones.close(a));
}

}  // namespace
}  // namespace foundry::layout::testing
