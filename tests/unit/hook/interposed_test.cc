// The table of interposed entry points holds together: names, versions, spellings.
#include "csrc/hook/interposed.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

#include "csrc/hook/device_code.h"

namespace foundry::hook {
namespace {

constexpr const char* kTypes[kEntries] = {
#define FOUNDRY_TYPE(symbol, base, type, group, since, stream) #type,
    FOUNDRY_INTERPOSED(FOUNDRY_TYPE)
#undef FOUNDRY_TYPE
};

TEST(Interposed, SymbolsAreUnique) {
  std::set<std::string> seen;
  for (const Row& one : kRows) EXPECT_TRUE(seen.insert(one.symbol).second) << one.symbol;
}

TEST(Interposed, NoTwoRowsAnswerTheSameQuestion) {
  std::set<std::tuple<std::string, int, DefaultStream>> seen;
  for (const Row& one : kRows) EXPECT_TRUE(seen.emplace(one.base, one.since, one.stream).second) << one.symbol;
}

// cudaTypedefs names a type after base name, version and default stream.
TEST(Interposed, TypesAgreeWithNamesAndVersions) {
  for (size_t i = 0; i < kEntries; ++i) {
    const Row& one = kRows[i];
    std::string expected = std::string("PFN_") + one.base + "_v" + std::to_string(one.since);
    if (one.stream == DefaultStream::per_thread) expected += "_ptsz";
    EXPECT_EQ(kTypes[i], expected) << one.symbol;
  }
}

TEST(Interposed, SymbolsAreSpellingsOfTheirBaseName) {
  for (const Row& one : kRows) {
    std::string rest = one.symbol;
    ASSERT_TRUE(rest.starts_with(one.base)) << one.symbol;
    rest.erase(0, std::string(one.base).size());
    const bool per_thread = rest.ends_with("_ptsz");
    EXPECT_EQ(per_thread, one.stream == DefaultStream::per_thread) << one.symbol;
    if (per_thread) rest.erase(rest.size() - 5);
    EXPECT_TRUE(rest.empty() || rest == "_v2" || rest == "_v3" || rest == "_v4") << one.symbol;
  }
}

TEST(Interposed, EveryPerThreadSpellingHasALegacyOne) {
  for (const Row& one : kRows) {
    if (one.stream != DefaultStream::per_thread) continue;
    bool found = false;
    for (const Row& other : kRows) {
      found = found || (other.base == std::string(one.base) && other.since == one.since && other.group == one.group &&
                        other.stream == DefaultStream::legacy);
    }
    EXPECT_TRUE(found) << one.symbol;
  }
}

TEST(Interposed, EnumeratorsIndexTheRows) {
  EXPECT_STREQ(row(Entry::cuGetProcAddress).symbol, "cuGetProcAddress");
  EXPECT_STREQ(row(Entry::cuMemAllocAsync_ptsz).symbol, "cuMemAllocAsync_ptsz");
  EXPECT_STREQ(row(Entry::cuSurfObjectDestroy).symbol, kRows[kEntries - 1].symbol);
}

TEST(DeviceFit, Sm80RunsOnEverythingFrom80On) {
  EXPECT_FALSE(runs_on(80, 7, 5));
  EXPECT_TRUE(runs_on(80, 8, 0));
  EXPECT_TRUE(runs_on(80, 8, 9));
  EXPECT_TRUE(runs_on(80, 9, 0));
  EXPECT_TRUE(runs_on(80, 12, 0));
}

TEST(DeviceFit, Sm90RunsOn90Alone) {
  EXPECT_FALSE(runs_on(90, 8, 9));
  EXPECT_TRUE(runs_on(90, 9, 0));
  EXPECT_FALSE(runs_on(90, 10, 0));
}

}  // namespace
}  // namespace foundry::hook
