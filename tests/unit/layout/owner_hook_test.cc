// The owner behind the C ABI as the hook makes it: ambient routing, images, journal from the start.
#include <gtest/gtest.h>

#include "csrc/layout/owner.h"
#include "tests/unit/layout/fake_driver.h"

namespace foundry::layout::testing {
namespace {

FakeDriver* driver = nullptr;

TEST(HookOwner, RoutesAmbientMemoryAndKeepsAJournal) {
  FakeDriver fake;
  driver = &fake;
  OwnerConfig config;
  config.owner = "hook";
  config.routes_ambient = true;
  config.journal.events = true;
  config.bind = []() -> Result<driver::Driver> { return driver->table(); };
  config.images = [](foundry_image*, size_t) -> size_t { return 7; };
  const foundry_abi* abi = make_owner(config);
  EXPECT_STREQ(abi->owner, "hook");
  EXPECT_EQ(abi->images(nullptr, 0), 7u);

  foundry_event event = {};
  event.kind = FOUNDRY_EVENT_IMAGE_LOAD;
  event.ordinal = owner_journal().next_ordinal();
  owner_journal().append(event);
  owner_diagnoses().add("seen");
  EXPECT_EQ(abi->diagnoses(nullptr, 0), 4u);

  foundry_error error = {};
  uint32_t slot = 0;
  EXPECT_NE(abi->set_ambient(0, 0, &error), 0);  // no zone yet
  abi->seal(1);
  ASSERT_EQ(abi->zone_open(0, "ambient", FOUNDRY_ZONE_AMBIENT, 0, 0, &slot, &error), 0) << error.text;
  ASSERT_NE(owner_zones(), nullptr);
  EXPECT_EQ(abi->set_ambient(0, slot, &error), 0) << error.text;
  EXPECT_EQ(owner_zones()->ambient(0), FOUNDRY_NO_ZONE);  // sealed before there was a zone
  abi->seal(0);
  EXPECT_EQ(owner_zones()->ambient(0), slot);

  AllocRequest request;
  request.bytes = 8;
  request.entry_point = "cuMemAlloc_v2";
  ASSERT_TRUE(owner_zones()->alloc(slot, request).ok());
  foundry_event events[2];
  ASSERT_EQ(abi->events(0, events, 2), 2u);
  EXPECT_EQ(events[0].kind, FOUNDRY_EVENT_IMAGE_LOAD);
  EXPECT_STREQ(events[1].entry_point, "cuMemAlloc_v2");
  EXPECT_LT(events[0].ordinal, events[1].ordinal);
  EXPECT_EQ(abi->zone_close(slot, &error), 0) << error.text;
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

}  // namespace
}  // namespace foundry::layout::testing
