// Names of functions from files of code, and files that only look like it.
#include "csrc/session/symbols.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "csrc/layout/stacks.h"

namespace foundry::session {

// Not in the unnamed namespace: its name must stand in the symbol table.
__attribute__((noinline)) uint32_t take_a_stack_here(layout::Stacks& stacks) {
  const uint32_t taken = stacks.take();
  asm volatile("");  // no tail call
  return taken;
}

namespace {

using ::testing::HasSubstr;

constexpr const char* kSelf = "/proc/self/exe";

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string write(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Symbols, NameTheFunctionsOfAStack) {
  layout::Stacks stacks;
  stacks.enable(true, false);
  ASSERT_EQ(take_a_stack_here(stacks), 1u);
  std::vector<foundry_frame> frames(layout::Stacks::kDeepest);
  frames.resize(stacks.copy(frames.data(), frames.size()));
  std::vector<foundry_module> modules(16);
  modules.resize(stacks.copy(modules.data(), modules.size()));
  const auto symbols = Symbols::read(kSelf);
  ASSERT_TRUE(symbols.ok()) << symbols.error().text;
  std::string names;
  for (const foundry_frame& frame : frames) {
    if (frame.module == FOUNDRY_NO_MODULE || modules[frame.module].build_id != symbols.value()->build_id()) continue;
    names += symbols.value()->at(frame.offset) + "\n";
  }
  EXPECT_THAT(names, HasSubstr("foundry::session::take_a_stack_here(foundry::layout::Stacks&)"));
  EXPECT_EQ(read_build_id(kSelf).value(), symbols.value()->build_id());
  EXPECT_EQ(symbols.value()->at(UINT64_MAX), "");
  EXPECT_EQ(symbols.value()->at(0), "");
}

TEST(Symbols, StrippedFilesHaveTheirExports) {
  Dl_info info{};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info), 0);
  const auto symbols = Symbols::read(info.dli_fname);
  ASSERT_TRUE(symbols.ok()) << symbols.error().text;
  const auto address = reinterpret_cast<uint64_t>(info.dli_saddr) - reinterpret_cast<uint64_t>(info.dli_fbase);
  EXPECT_THAT(symbols.value()->at(address), HasSubstr("malloc"));
}

TEST(Symbols, OtherFilesAreRefusedInASentence) {
  for (const std::string& path :
       {write("text", "no code here"), write("empty", ""), std::string("/nowhere"), std::string("/dev/null"),
        write("class", std::string("\177ELF\1\1\1", 7) + std::string(100, '\0'))}) {
    const auto symbols = Symbols::read(path);
    ASSERT_FALSE(symbols.ok()) << path;
    EXPECT_THAT(symbols.error().text, HasSubstr(path));
    EXPECT_FALSE(read_build_id(path).ok());
  }
}

TEST(Symbols, DamagedFilesAreRefusedOrReadWithinTheirBounds) {
  const std::string good = content("/lib64/ld-linux-x86-64.so.2");
  ASSERT_GT(good.size(), 1000u);
  std::mt19937_64 random(42);
  int refused = 0;
  const uint64_t headers = *reinterpret_cast<const uint64_t*>(good.data() + 40);  // e_shoff
  for (int round = 0; round < 200; ++round) {
    std::string bad = good;
    if (round % 4 == 0) {
      bad.resize(random() % bad.size());
    } else {
      for (int change = 0; change < 3; ++change) {
        const size_t at = change == 0 ? random() % 64 : headers + random() % (bad.size() - headers);
        bad[at] = static_cast<char>(random());
      }
    }
    const auto symbols = Symbols::read(write("damaged", bad));
    refused += symbols.ok() ? 0 : 1;
    if (!symbols.ok()) continue;
    for (uint64_t address = 0; address < good.size(); address += 4096) symbols.value()->at(address);
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace foundry::session
