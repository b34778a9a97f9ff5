// Call stacks of the journal: what is kept, once each, and where a frame lies.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "csrc/layout/journal.h"
#include "csrc/layout/journal_level.h"
#include "csrc/layout/stacks.h"

namespace foundry::layout {
namespace {

template <class Record>
std::vector<Record> all(const Stacks& stacks) {
  std::vector<Record> list(stacks.copy(static_cast<Record*>(nullptr), 0));
  EXPECT_EQ(stacks.copy(list.data(), list.size()), list.size());
  return list;
}

std::vector<foundry_frame> frames_of(const Stacks& stacks, uint32_t stack) {
  const foundry_stack one = all<foundry_stack>(stacks).at(stack - 1);
  const auto frames = all<foundry_frame>(stacks);
  return {frames.begin() + one.first_frame, frames.begin() + one.first_frame + one.frame_count};
}

__attribute__((noinline)) uint32_t from_here(Stacks& stacks) {
  const uint32_t taken = stacks.take();
  asm volatile("");  // no tail call
  return taken;
}
__attribute__((noinline)) uint32_t from_there(Stacks& stacks) {
  const uint32_t taken = from_here(stacks);
  asm volatile("");
  return taken;
}

TEST(Stacks, AreOffUnlessEnabled) {
  Stacks stacks;
  EXPECT_EQ(stacks.take(), 0u);
  EXPECT_TRUE(all<foundry_stack>(stacks).empty());
  Journal journal;
  EXPECT_EQ(journal.stack(), 0u);
  journal.stacks().enable(true, false);
  EXPECT_EQ(journal.stack(), 1u);
  journal.set_recording(false);
  EXPECT_EQ(journal.stack(), 0u);
}

TEST(Stacks, EqualOnesAreKeptOnce) {
  Stacks stacks;
  stacks.enable(true, false);
  std::vector<uint32_t> taken;
  const volatile int rounds = 3;  // one call site each: no unrolling
  for (int i = 0; i < rounds; ++i) {
    taken.push_back(from_here(stacks));
    taken.push_back(from_there(stacks));
  }
  EXPECT_EQ(taken, (std::vector<uint32_t>{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(all<foundry_stack>(stacks).size(), 2u);
  EXPECT_EQ(stacks.dropped(), 0u);
}

TEST(Stacks, FramesNameTheFileTheyLieIn) {
  Stacks stacks;
  stacks.enable(true, false);
  const std::vector<foundry_frame> frames = frames_of(stacks, from_there(stacks));
  const auto modules = all<foundry_module>(stacks);
  Dl_info here{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&from_there), &here), 0);
  const uint64_t begin = reinterpret_cast<uint64_t>(&from_there) - reinterpret_cast<uint64_t>(here.dli_fbase);
  bool found = false;
  for (const foundry_frame& frame : frames) {
    if (frame.module == FOUNDRY_NO_MODULE) continue;
    ASSERT_LT(frame.module, modules.size());
    found = found || (frame.offset >= begin && frame.offset < begin + 64);
  }
  EXPECT_TRUE(found) << "no frame lies in the caller";
  for (const foundry_module& module : modules) {
    EXPECT_STRNE(module.name, "");
    EXPECT_EQ(std::strchr(module.name, '/'), nullptr) << module.name;
    EXPECT_EQ(std::strlen(module.build_id) % 2, 0u);
  }
}

TEST(Stacks, CodeThatNoFileHoldsHasNoModule) {
  Stacks stacks;
  const uint64_t addresses[] = {reinterpret_cast<uint64_t>(&from_here), reinterpret_cast<uint64_t>(&stacks), 16};
  const std::vector<foundry_frame> frames = frames_of(stacks, stacks.keep(addresses, 3, nullptr, 0));
  EXPECT_NE(frames[0].module, FOUNDRY_NO_MODULE);
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(frames[i].module, FOUNDRY_NO_MODULE);
    EXPECT_EQ(frames[i].offset, 0u) << "an address of this process is nobody's business";
  }
}

TEST(Stacks, DeepOnesAreCut) {
  Stacks stacks;
  stacks.enable(true, false);
  struct Recursion {
    static __attribute__((noinline)) uint32_t go(Stacks& stacks, int depth) {
      const uint32_t taken = depth == 0 ? stacks.take() : go(stacks, depth - 1);
      asm volatile("");
      return taken;
    }
  };
  EXPECT_EQ(frames_of(stacks, Recursion::go(stacks, 500)).size(), Stacks::kDeepest);
}

TEST(Stacks, ThereIsAMost) {
  Stacks stacks;
  for (uint64_t i = 0; i < Stacks::kMost; ++i) {
    const uint64_t addresses[] = {i, i * i};
    ASSERT_EQ(stacks.keep(addresses, 2, nullptr, 0), i + 1);
  }
  const uint64_t known[] = {7, 49}, fresh[] = {7, 50};
  EXPECT_EQ(stacks.keep(fresh, 2, nullptr, 0), 0u);
  EXPECT_EQ(stacks.dropped(), 1u);
  EXPECT_EQ(stacks.keep(known, 2, nullptr, 0), 8u);
  EXPECT_EQ(all<foundry_stack>(stacks).size(), Stacks::kMost);
}

TEST(Stacks, PythonFramesTellStacksApartAndAreCopied) {
  Stacks stacks;
  stacks.enable(true, true);
  static std::string function;
  static uint32_t line;
  stacks.set_python_walker([](foundry_python_frame* out, size_t capacity) -> size_t {
    EXPECT_GE(capacity, 2u);
    out[0] = {function.c_str(), "engine.py", line, 0};
    out[1] = {"main", "engine.py", 1, 0};
    return 2;
  });
  std::vector<uint32_t> taken;
  for (const auto& [name, at] :
       std::vector<std::pair<std::string, uint32_t>>{{"load", 5}, {"load", 6}, {"warm", 5}, {"load", 5}}) {
    function = name;
    line = at;
    taken.push_back(from_here(stacks));
  }
  EXPECT_EQ(taken, (std::vector<uint32_t>{1, 2, 3, 1}));
  function = "gone";
  const auto frames = all<foundry_python_frame>(stacks);
  ASSERT_EQ(frames.size(), 6u);
  EXPECT_STREQ(frames[0].function, "load");
  EXPECT_STREQ(frames[0].file, "engine.py");
  EXPECT_EQ(frames[2].line, 6u);
  EXPECT_STREQ(frames[4].function, "warm");
  EXPECT_STREQ(frames[5].function, "main");
  stacks.enable(true, false);
  from_there(stacks);
  EXPECT_EQ(all<foundry_python_frame>(stacks).size(), 6u) << "asked although Python frames are off";
}

TEST(Stacks, LongNamesAreCutAndWalkersAreNotTrusted) {
  Stacks stacks;
  stacks.enable(true, true);
  static const std::string endless(5000, 'x');
  stacks.set_python_walker([](foundry_python_frame* out, size_t capacity) -> size_t {
    for (size_t i = 0; i < capacity; ++i) out[i] = {endless.c_str(), nullptr, 0, 0};
    return capacity + 7;
  });
  ASSERT_EQ(stacks.take(), 1u);
  const auto frames = all<foundry_python_frame>(stacks);
  ASSERT_EQ(frames.size(), Stacks::kDeepestPython);
  EXPECT_EQ(std::strlen(frames[0].function), Stacks::kLongestName);
  EXPECT_STREQ(frames[0].file, "");
}

TEST(Stacks, ThreadsShareTheList) {
  Stacks stacks;
  stacks.enable(true, false);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&stacks] {
      for (int n = 0; n < 500; ++n) {
        const uint32_t stack = from_here(stacks);
        ASSERT_NE(stack, 0u);
        foundry_stack read[8];
        stacks.copy(read, 8);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(all<foundry_stack>(stacks).size(), 1u);
}

TEST(Stacks, LibrariesLoadedLaterAreFound) {
  Stacks stacks;
  stacks.enable(true, false);
  from_here(stacks);
  const size_t before = all<foundry_module>(stacks).size();
  void* library = dlopen("libthread_db.so.1", RTLD_LAZY);  // of the C library, and nobody's dependency
  ASSERT_NE(library, nullptr) << dlerror();
  void* symbol = dlsym(library, "td_symbol_list");
  ASSERT_NE(symbol, nullptr);
  const uint64_t addresses[] = {reinterpret_cast<uint64_t>(symbol)};
  const foundry_frame frame = frames_of(stacks, stacks.keep(addresses, 1, nullptr, 0)).at(0);
  ASSERT_NE(frame.module, FOUNDRY_NO_MODULE);
  EXPECT_GE(frame.module, before);
  EXPECT_STREQ(all<foundry_module>(stacks).at(frame.module).name, "libthread_db.so.1");
  dlclose(library);
}

TEST(JournalLevel, Words) {
  const auto bits = [](const char* text, bool sizes = false) { return JournalLevel::read(text, sizes).bits(); };
  EXPECT_EQ(bits(nullptr), 0u);
  EXPECT_EQ(bits(nullptr, true), FOUNDRY_JOURNAL_EVENTS);
  EXPECT_EQ(bits("", true), FOUNDRY_JOURNAL_EVENTS);
  EXPECT_EQ(bits("off", true), 0u);
  EXPECT_EQ(bits("sizes"), FOUNDRY_JOURNAL_EVENTS);
  EXPECT_EQ(bits("stacks"), FOUNDRY_JOURNAL_EVENTS | FOUNDRY_JOURNAL_STACKS);
  EXPECT_EQ(bits("stacks,python"), FOUNDRY_JOURNAL_EVENTS | FOUNDRY_JOURNAL_STACKS | FOUNDRY_JOURNAL_PYTHON);
  EXPECT_EQ(bits("everything"), FOUNDRY_JOURNAL_EVENTS);
  EXPECT_FALSE(JournalLevel::read("everything", false).understood);
  EXPECT_TRUE(JournalLevel::read("stacks", false).understood);
}

}  // namespace
}  // namespace foundry::layout
