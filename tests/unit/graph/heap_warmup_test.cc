#include "csrc/graph/heap_warmup.h"

#include <sys/resource.h>
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

// Private memory that this process may write to.
uint64_t writable_bytes() {
  std::ifstream status("/proc/self/status");
  unsigned long long kilobytes = 0;
  for (std::string line; std::getline(status, line);) std::sscanf(line.c_str(), "VmData: %llu", &kilobytes);
  return kilobytes << 10;
}

struct Use {
  int64_t faults = 0;  // of this thread
  int64_t grown = 0;   // memory that was made writable
};

// While it uses most of `bytes` in small pieces, as the driver does.
Use use(uint64_t bytes) {
  rusage before{}, after{};
  const uint64_t writable = writable_bytes();
  std::vector<void*> blocks;
  blocks.reserve(bytes / kBlock);
  getrusage(RUSAGE_THREAD, &before);
  for (uint64_t used = 0; used < bytes / 4 * 3; used += kBlock) {
    blocks.push_back(std::malloc(kBlock));
    *static_cast<volatile char*>(blocks.back()) = 1;
  }
  getrusage(RUSAGE_THREAD, &after);
  const auto grown = static_cast<int64_t>(writable_bytes() - writable);
  for (void* block : blocks) std::free(block);
  return {after.ru_minflt - before.ru_minflt, grown};
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
  in_new_heap([] { EXPECT_GT(use(kBytes).grown, int64_t{kBytes / 2}); });
  for (const uint64_t bytes : {kBytes, 4 * kBytes}) {  // a thread's heaps have 64 MiB
    in_new_heap([bytes] {
      const HeapWarmup warmup(bytes, false, {});
      EXPECT_EQ(warmup.bytes(), bytes);
      EXPECT_EQ(warmup.fetched(), 0u);
      for (int i = 0; i < 2; ++i) EXPECT_LT(use(bytes).grown, int64_t{kBytes / 8});
    });
  }
}

TEST(HeapWarmupTest, SmallPiecesCauseNoFaultsOnceItIsFetched) {
  if (kOwnHeap) GTEST_SKIP() << "another heap than the C library's";
  in_new_heap([] { EXPECT_GT(use(kBytes).faults, 4000); });
  in_new_heap([] {
    const HeapWarmup warmup(kBytes, true, [](uint64_t) { return false; });
    EXPECT_EQ(warmup.bytes(), kBytes);
    EXPECT_GT(warmup.fetched(), kBytes - 2 * kBlock);
    EXPECT_LT(use(kBytes).faults, 400);
  });
}

TEST(HeapWarmupTest, FetchingStopsWhenTold) {
  const HeapWarmup warmup(4 * kBytes, true, [&](uint64_t bytes) { return bytes == 6u << 20; });
  EXPECT_EQ(warmup.fetched(), 6u << 20);
  EXPECT_LT(warmup.bytes(), 2 * kBytes);
}

TEST(HeapWarmupTest, NothingIsNothing) {
  const HeapWarmup warmup(0, true, [](uint64_t) { return false; });
  EXPECT_EQ(warmup.bytes(), 0u);
  EXPECT_EQ(warmup.fetched(), 0u);
}

}  // namespace
}  // namespace foundry::graph
