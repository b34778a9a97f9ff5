// The owner behind the C ABI as foundry._core makes it: one story, since a process has one owner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "csrc/layout/owner.h"
#include "csrc/layout/range_map.h"
#include "tests/unit/layout/fake_driver.h"

namespace foundry::layout::testing {
namespace {

using ::testing::HasSubstr;

FakeDriver* driver = nullptr;
bool driver_there = false;

Result<driver::Driver> bind() {
  if (!driver_there) return Error{ErrorKind::unsupported, 0, "no CUDA driver"};
  return driver->table();
}

TEST(CoreOwner, FromFirstCallToClosedZones) {
  FakeDriver fake;
  driver = &fake;
  OwnerConfig config;
  config.build = "test build";
  config.sm_target = 90;
  config.bind = bind;
  config.driver_symbol = [](const char* symbol) -> void* {
    return std::strcmp(symbol, "cuMemFree_v2") == 0 ? &driver : nullptr;
  };
  const foundry_abi* abi = make_owner(config);
  ASSERT_NE(abi, nullptr);
  EXPECT_EQ(make_owner(OwnerConfig{}), abi);
  EXPECT_EQ(abi->version, FOUNDRY_ABI_VERSION);
  EXPECT_EQ(abi->bytes, sizeof(foundry_abi));
  EXPECT_STREQ(abi->owner, "core");
  EXPECT_STREQ(abi->build, "test build");
  EXPECT_EQ(abi->sm_target, 90);
  EXPECT_EQ(abi->driver_symbol("cuMemFree_v2"), &driver);
  EXPECT_EQ(abi->driver_symbol("cuNothing"), nullptr);
  // No entry may be missing: users call them unasked.
  const auto* entries = reinterpret_cast<void* const*>(&abi->driver_symbol);
  const size_t count = (sizeof(foundry_abi) - offsetof(foundry_abi, driver_symbol)) / sizeof(void*);
  for (size_t i = 0; i < count; ++i) EXPECT_NE(entries[i], nullptr) << "entry " << i;

  // Without a zone: answers, no driver call.
  foundry_error error = {};
  uint32_t slot = 0;
  uint64_t address = 0;
  EXPECT_EQ(abi->in_zone(0x100000000000, &slot), 0);
  EXPECT_EQ(abi->zones(nullptr, 0), 0u);
  EXPECT_EQ(abi->ranges(0, nullptr, 0), 0u);
  EXPECT_EQ(abi->unclaimed(0, nullptr, 0), 0u);
  EXPECT_EQ(abi->images(nullptr, 0), 0u);
  EXPECT_EQ(abi->zone_close(3, &error), 0);
  EXPECT_EQ(abi->release_quarantine(FOUNDRY_NO_ZONE, &error), 0);
  EXPECT_EQ(abi->zone_alloc(0, 8, 0, 0, &address, &error), 1 + static_cast<int>(ErrorKind::invalid));
  EXPECT_STREQ(error.text, "no zone is open in this process");
  EXPECT_NE(abi->zone_free(0x1234, 0, nullptr), 0);
  EXPECT_EQ(abi->set_ambient(0, 0, &error), 1 + static_cast<int>(ErrorKind::unsupported));
  EXPECT_THAT(error.text, HasSubstr("foundry run --save"));
  EXPECT_EQ(owner_zones(), nullptr);
  EXPECT_TRUE(fake.log().empty());
  abi->capture_delta(1);  // a capture may begin before the first zone is opened
  abi->seal(1);
  abi->seal(0);

  // The driver may come later, a wrong environment may be put right.
  EXPECT_EQ(abi->zone_open(0, "weights", FOUNDRY_ZONE_REBUILT, 0, 0, &slot, &error),
            1 + static_cast<int>(ErrorKind::unsupported));
  EXPECT_STREQ(error.text, "no CUDA driver");
  driver_there = true;
  setenv("FOUNDRY_BASE", "nonsense", 1);
  EXPECT_NE(abi->zone_open(0, "weights", FOUNDRY_ZONE_REBUILT, 0, 0, &slot, &error), 0);
  EXPECT_THAT(error.text, HasSubstr("FOUNDRY_BASE='nonsense'"));
  setenv("FOUNDRY_BASE", "200000000000", 1);
  EXPECT_NE(abi->zone_open(0, nullptr, FOUNDRY_ZONE_REBUILT, 0, 0, &slot, &error), 0);
  ASSERT_EQ(abi->zone_open(0, "weights", FOUNDRY_ZONE_REBUILT, 0, 0, &slot, &error), 0) << error.text;

  foundry_zone_info info = {};
  EXPECT_EQ(abi->zones(&info, 1), 1u);
  EXPECT_EQ(info.base, 0x200000000000u);
  const foundry_expectation expected[] = {{info.base + (2u << 20), 100}};
  EXPECT_EQ(abi->zone_expect(slot, expected, 1, info.base + (4u << 20), &error), 0) << error.text;
  EXPECT_EQ(abi->unclaimed(slot, nullptr, 0), 1u);
  EXPECT_EQ(abi->zone_alloc(slot, 100, 0, 5, &address, &error), 0) << error.text;
  EXPECT_EQ(address, expected[0].address);
  EXPECT_EQ(abi->pin(address, 100, 1, &error), 0);
  EXPECT_EQ(abi->pin(address, 100, 0, &error), 0);
  EXPECT_EQ(abi->zone_map(slot, info.base, 2u << 20, &error), 0) << error.text;
  EXPECT_EQ(abi->zone_map(slot, info.base, 2u << 20, &error), 1 + static_cast<int>(ErrorKind::invalid));
  uint32_t found = 77;
  EXPECT_EQ(abi->in_zone(address, &found), 1);
  EXPECT_EQ(found, slot);

  const auto map = RangeMap::of(*abi);
  ASSERT_TRUE(map.ok());
  ASSERT_EQ(map.value().size(), 2u);
  EXPECT_EQ(map.value()[0].state, FOUNDRY_RANGE_MATERIALIZED);
  EXPECT_EQ(map.value()[1].stream, 5u);

  // The capture that began before there were zones counts.
  EXPECT_EQ(abi->zone_free(address, 0, &error), 0) << error.text;
  EXPECT_TRUE(fake.accessible(address, 0));
  EXPECT_NE(abi->release_quarantine(slot, &error), 0);
  abi->capture_delta(-1);
  EXPECT_EQ(abi->zone_unmap(info.base, &error), 0) << error.text;
  EXPECT_TRUE(fake.mapped().empty());

  EXPECT_EQ(abi->events(0, nullptr, 0), 0u);  // not recorded unless asked for
  abi->capture_delta(-1);
  char text[200];
  EXPECT_GT(abi->diagnoses(text, sizeof text), 0u);
  EXPECT_THAT(text, HasSubstr("more stream captures ended than began"));

  EXPECT_EQ(abi->zone_close(slot, &error), 0) << error.text;
  EXPECT_EQ(fake.reservations(), 0u);
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

TEST(FoundryError, CutsLongSentencesAndReadsBack) {
  foundry_error out;
  const Error longest{ErrorKind::io, 5, std::string(5000, 'x')};
  EXPECT_EQ(fill(&out, longest), 1 + static_cast<int>(ErrorKind::io));
  EXPECT_EQ(std::strlen(out.text), static_cast<size_t>(FOUNDRY_ERROR_BYTES - 1));
  const Error back = read(out);
  EXPECT_EQ(back.kind, ErrorKind::io);
  EXPECT_EQ(back.code, 5);
  EXPECT_EQ(back.text, std::string(FOUNDRY_ERROR_BYTES - 1, 'x'));
  std::memset(&out, 'y', sizeof out);  // another build's mistake: unknown kind, no terminator
  EXPECT_EQ(read(out).kind, ErrorKind::state);
  EXPECT_EQ(read(out).text.size(), static_cast<size_t>(FOUNDRY_ERROR_BYTES));
}

}  // namespace
}  // namespace foundry::layout::testing
