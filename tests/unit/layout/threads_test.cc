// Many threads at once; also meant to run under ThreadSanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "tests/unit/layout/fixture.h"

namespace foundry::layout::testing {
namespace {

TEST_F(ZonesTest, ThreadsGetAddressesOfTheirOwn) {
  constexpr int kThreads = 8, kRounds = 200;
  const std::vector<uint32_t> slots = {open("weights", FOUNDRY_ZONE_REBUILT), open("ambient", FOUNDRY_ZONE_AMBIENT),
                                       open("weights", FOUNDRY_ZONE_REBUILT, 1)};
  std::vector<std::vector<uint64_t>> seen(kThreads);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      std::mt19937 random(static_cast<unsigned>(number));
      std::vector<uint64_t> mine;
      for (int round = 0; round < kRounds; ++round) {
        AllocRequest request;
        request.bytes = 1 + random() % (3 * kMiB);
        const auto address = zones.alloc(slots[random() % slots.size()], request);
        if (!address.ok()) {
          ++failures;
          continue;
        }
        seen[static_cast<size_t>(number)].push_back(address.value());
        mine.push_back(address.value());
        if (!zones.in_zone(address.value()) || !zones.find(address.value())) ++failures;
        if (random() % 2 == 0) {
          if (!zones.free(mine.back()).ok()) ++failures;
          mine.pop_back();
        }
        if (random() % 16 == 0) {
          zones.capture_delta(1);
          zones.capture_delta(-1);
        }
        if (random() % 16 == 0)
          static_cast<void>(zones.release_quarantine(FOUNDRY_NO_ZONE));  // refused during captures
        if (random() % 8 == 0 && !mine.empty()) {
          if (!zones.pin(mine[0], 1, true).ok() || !zones.pin(mine[0], 1, false).ok()) ++failures;
        }
      }
      for (const uint64_t address : mine) {
        if (!zones.free(address).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  std::set<uint64_t> all;
  for (const auto& addresses : seen) all.insert(addresses.begin(), addresses.end());
  EXPECT_EQ(all.size(), static_cast<size_t>(kThreads * kRounds));
  EXPECT_EQ(journal.size(), static_cast<uint64_t>(2 * kThreads * kRounds));
  EXPECT_OK(zones.release_quarantine(FOUNDRY_NO_ZONE));
  EXPECT_TRUE(driver.mapped().empty());
  EXPECT_EQ(driver.physical(), 0u);
}

TEST_F(ZonesTest, AThreadThatWaitsForTheDeviceKeepsNobodyFromAllocating) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, kMiB);
  std::atomic<bool> waiting{false}, allocated{false};
  // The device only finishes after another thread has allocated: with a lock held this would never end.
  driver.on_synchronize = [&] {
    waiting = true;
    for (int i = 0; i < 5000 && !allocated; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(allocated.load());
  };
  std::thread freeing([&] { EXPECT_OK(zones.free(x)); });
  while (!waiting) std::this_thread::yield();
  EXPECT_NE(alloc(open("other", FOUNDRY_ZONE_GRAPHS), kMiB), 0u);
  allocated = true;
  freeing.join();
  driver.on_synchronize = nullptr;
  EXPECT_FALSE(driver.accessible(x, 0));
}

TEST_F(ZonesTest, ACaptureBeginsOnlyAfterARunningFree) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  const uint64_t x = alloc(a, kMiB);
  std::atomic<bool> waiting{false}, finish{false}, began{false};
  driver.on_synchronize = [&] {
    waiting = true;
    while (!finish) std::this_thread::yield();
  };
  std::thread freeing([&] { EXPECT_OK(zones.free(x)); });
  while (!waiting) std::this_thread::yield();
  std::thread capturing([&] {
    zones.capture_delta(1);
    began = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(began.load());
  finish = true;
  capturing.join();
  freeing.join();
  EXPECT_FALSE(driver.accessible(x, 0));  // what was under way was completed
  zones.capture_delta(-1);
  driver.on_synchronize = nullptr;
}

TEST_F(ZonesTest, AZoneClosedDuringAFreeIsNoProblem) {
  const uint32_t a = open("weights", FOUNDRY_ZONE_REBUILT);
  std::vector<uint64_t> addresses;
  for (int i = 0; i < 50; ++i) addresses.push_back(alloc(a, kMiB));
  std::thread freeing([&] {
    for (const uint64_t address : addresses) static_cast<void>(zones.free(address));  // some find nothing any more
  });
  EXPECT_OK(zones.close(a));
  freeing.join();
  EXPECT_TRUE(driver.mapped().empty());
}

}  // namespace
}  // namespace foundry::layout::testing
