// Zones on the fake driver, and the few lines every test of them needs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/layout/zones.h"
#include "tests/unit/layout/fake_driver.h"

namespace foundry::layout::testing {

inline constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

class ZonesTest : public ::testing::Test {
 protected:
  // After every test: no rule of the driver broken, everything given back.
  void TearDown() override {
    const Status closed = zones.close_all();
    EXPECT_TRUE(closed.ok()) << closed.error().text;
    EXPECT_EQ(driver.violations(), std::vector<std::string>{});
    EXPECT_TRUE(driver.mapped().empty());
    EXPECT_EQ(driver.reservations(), 0u);
    EXPECT_EQ(driver.primary_references(0), 0);
    EXPECT_EQ(driver.primary_references(1), 0);
  }

  uint32_t open(const std::string& name, uint32_t kind, int device = 0, uint64_t base = 0, uint64_t size = 0) {
    const auto slot = zones.open(device, name, kind, base, size);
    EXPECT_TRUE(slot.ok()) << slot.error().text;
    return slot.ok() ? slot.value() : FOUNDRY_NO_ZONE;
  }
  uint64_t alloc(uint32_t slot, uint64_t bytes, uint64_t alignment = 0) {
    AllocRequest request;
    request.bytes = bytes;
    request.alignment = alignment;
    const auto address = zones.alloc(slot, request);
    EXPECT_TRUE(address.ok()) << address.error().text;
    return address.ok() ? address.value() : 0;
  }
  Error alloc_error(uint32_t slot, uint64_t bytes, uint64_t alignment = 0) {
    AllocRequest request;
    request.bytes = bytes;
    request.alignment = alignment;
    const auto address = zones.alloc(slot, request);
    EXPECT_FALSE(address.ok());
    return address.ok() ? Error{} : address.error();
  }
  foundry_zone_info info(uint32_t slot) {
    std::vector<foundry_zone_info> all(FOUNDRY_MAX_ZONES);
    all.resize(zones.zones(all.data(), all.size()));
    for (const foundry_zone_info& one : all) {
      if (one.slot == slot) return one;
    }
    ADD_FAILURE() << "no zone in slot " << slot;
    return {};
  }
  std::vector<foundry_range> ranges(uint32_t slot) {
    std::vector<foundry_range> all(zones.ranges(slot, nullptr, 0));
    zones.ranges(slot, all.data(), all.size());
    return all;
  }
  uint32_t state(uint64_t address) {
    const auto range = zones.find(address);
    EXPECT_TRUE(range.has_value());
    return range ? range->state : 0;
  }

  FakeDriver driver;
  Journal journal;
  Diagnoses diagnoses;
  Zones zones{driver.table(), journal, diagnoses, Windows{}};
};

#define EXPECT_OK(expression)                                            \
  do {                                                                   \
    const ::foundry::Status expect_ok_status = (expression);             \
    EXPECT_TRUE(expect_ok_status.ok()) << expect_ok_status.error().text; \
  } while (false)

}  // namespace foundry::layout::testing
