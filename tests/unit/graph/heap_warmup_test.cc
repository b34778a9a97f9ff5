#include "csrc/graph/heap_warmup.h"

#include <sys/resource.h>

#include <cstdlib>
#include <memory>
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

// Page faults of this thread while it uses most of kBytes in small pieces, as the driver does.
int64_t faults_of_use() {
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  std::vector<void*> blocks;
  blocks.reserve(kBytes / kBlock);
  for (uint64_t used = 0; used < kBytes / 4 * 3; used += kBlock) {
    blocks.push_back(std::malloc(kBlock));
    *static_cast<volatile char*>(blocks.back()) = 1;
  }
  getrusage(RUSAGE_THREAD, &after);
  for (void* block : blocks) std::free(block);
  return after.ru_minflt - before.ru_minflt;
}

TEST(HeapWarmupTest, SmallPiecesCauseNoFaultsAfterIt) {
  if (kOwnHeap) GTEST_SKIP() << "another heap than the C library's";
  int64_t cold = 0, warm = 0;
  std::thread([&] { cold = faults_of_use(); }).join();
  std::thread([&] {
    const HeapWarmup warmup(kBytes, [](uint64_t) { return false; });
    EXPECT_EQ(warmup.bytes(), kBytes);
    warm = faults_of_use();
  }).join();
  EXPECT_GT(cold, 4000);
  EXPECT_LT(warm, cold / 10);
}

TEST(HeapWarmupTest, StopsWhenTold) {
  const HeapWarmup warmup(kBytes, [&](uint64_t bytes) { return bytes == 3 * 65536; });
  EXPECT_EQ(warmup.bytes(), 3u * 65536u);
}

TEST(HeapWarmupTest, NothingIsNothing) {
  const HeapWarmup warmup(0, [](uint64_t) { return false; });
  EXPECT_EQ(warmup.bytes(), 0u);
}

}  // namespace
}  // namespace foundry::graph
