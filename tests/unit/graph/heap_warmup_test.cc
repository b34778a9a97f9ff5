#include "csrc/graph/heap_warmup.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace foundry::graph {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnHeap = true;  // the sanitizer's, which hands no memory out again
#else
constexpr bool kOwnHeap = false;
#endif

constexpr uint64_t kBytes = uint64_t{24} << 20;
constexpr size_t kBlock = 4096;

// A line of this process's status: "VmData", private memory that it may write to, or "VmRSS".
uint64_t bytes_of_process(const std::string& key) {
  std::ifstream status("/proc/self/status");
  unsigned long long kilobytes = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) std::sscanf(line.c_str() + key.size() + 1, "%llu", &kilobytes);
  }
  return kilobytes << 10;
}

// Memory that was made writable while most of `bytes` is used in small pieces, as the driver does.
int64_t growth_by_using(uint64_t bytes) {
  const uint64_t writable = bytes_of_process("VmData");
  std::vector<void*> blocks;
  blocks.reserve(bytes / kBlock);
  for (uint64_t used = 0; used < bytes / 4 * 3; used += kBlock) {
    blocks.push_back(std::malloc(kBlock));
    *static_cast<volatile char*>(blocks.back()) = 1;
  }
  const auto grown = static_cast<int64_t>(bytes_of_process("VmData") - writable);
  for (void* block : blocks) std::free(block);
  return grown;
}

// In a thread of a process of its own: heaps of threads that ended are given to others.
void in_new_heap(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    std::thread(body).join();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(HeapWarmupTest, TheHeapOfTheThreadHasGrown) {
  if (kOwnHeap) GTEST_SKIP() << "another heap than the C library's";
  in_new_heap([] { EXPECT_GT(growth_by_using(kBytes), int64_t{kBytes / 2}); });
  for (const uint64_t bytes : {kBytes, 4 * kBytes}) {  // a thread's heaps have 64 MiB
    in_new_heap([bytes] {
      const HeapWarmup warmup(bytes);
      EXPECT_EQ(warmup.bytes(), bytes);
      for (int i = 0; i < 2; ++i) EXPECT_LT(growth_by_using(bytes), int64_t{kBytes / 8});
    });
  }
}

TEST(HeapWarmupTest, RoomThatNobodyUsesTakesNoMemory) {
  if (kOwnHeap) GTEST_SKIP() << "another heap than the C library's";
  in_new_heap([] {
    const uint64_t before = bytes_of_process("VmRSS");
    {
      const HeapWarmup warmup(10 * kBytes);
      EXPECT_LT(bytes_of_process("VmRSS"), before + kBytes);
    }
    EXPECT_LT(bytes_of_process("VmRSS"), before + kBytes);
  });
}

TEST(HeapWarmupTest, LittleIsNotWorthIt) {
  EXPECT_EQ(HeapWarmup(0).bytes(), 0u);
  EXPECT_EQ(HeapWarmup(kBytes / 24).bytes(), 0u);
}

}  // namespace
}  // namespace foundry::graph
