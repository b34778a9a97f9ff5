// CPU versions of the device kernels: properties that both must have.
#include "csrc/device/reference.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <utility>

namespace foundry::device {
namespace {

std::vector<std::byte> noise(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& one : out) one = static_cast<std::byte>(random());
  return out;
}

std::pair<uint64_t, uint64_t> fingerprint(const BlockSummary& summary) {
  return {summary.fingerprint[0], summary.fingerprint[1]};
}

TEST(BlockSummary, OneForEachStartedBlock) {
  EXPECT_TRUE(block_summaries({}).empty());
  EXPECT_EQ(block_summaries(noise(1, 1)).size(), 1u);
  EXPECT_EQ(block_summaries(noise(kBlockBytes, 1)).size(), 1u);
  const auto three = block_summaries(noise(2 * kBlockBytes + 5, 1));
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[1].bytes, kBlockBytes);
  EXPECT_EQ(three[2].bytes, 5u);
}

TEST(BlockSummary, ZeroMeansEveryByte) {
  std::vector<std::byte> block(kBlockBytes + 3);
  for (const BlockSummary& summary : block_summaries(block)) EXPECT_EQ(summary.is_zero, 1u);
  block[kBlockBytes - 1] = std::byte{1};
  EXPECT_EQ(block_summaries(block)[0].is_zero, 0u);
  EXPECT_EQ(block_summaries(block)[1].is_zero, 1u);
  block[kBlockBytes + 2] = std::byte{0x80};
  EXPECT_EQ(block_summaries(block)[1].is_zero, 0u);
}

TEST(BlockSummary, EqualBlocksAreEqualWhereverTheyLie) {
  const auto block = noise(kBlockBytes, 2);
  std::vector<std::byte> three = block;
  three.insert(three.end(), kBlockBytes, std::byte{});
  three.insert(three.end(), block.begin(), block.end());
  const auto summaries = block_summaries(three);
  EXPECT_EQ(fingerprint(summaries[0]), fingerprint(summaries[2]));
  EXPECT_NE(fingerprint(summaries[0]), fingerprint(summaries[1]));
}

TEST(BlockSummary, EveryBitAndEveryPlaceCounts) {
  std::vector<std::byte> block(kBlockBytes);
  std::set<uint64_t> first, second;
  int cases = 0;
  for (size_t at = 0; at < kBlockBytes; at += 61) {
    for (const int bit : {0, 3, 7}) {
      block[at] = static_cast<std::byte>(1u << bit);
      const BlockSummary summary = block_summaries(block)[0];
      first.insert(summary.fingerprint[0]);
      second.insert(summary.fingerprint[1]);
      ++cases;
    }
    block[at] = std::byte{};
  }
  EXPECT_EQ(first.size(), static_cast<size_t>(cases));
  EXPECT_EQ(second.size(), static_cast<size_t>(cases));
}

TEST(BlockSummary, SwappedWordsDiffer) {
  auto block = noise(kBlockBytes, 3);
  const auto before = fingerprint(block_summaries(block)[0]);
  for (int i = 0; i < 8; ++i) std::swap(block[8 + i], block[800 + i]);
  EXPECT_NE(before, fingerprint(block_summaries(block)[0]));
}

TEST(BlockSummary, LengthCounts) {
  const std::vector<std::byte> zeros(4096);
  EXPECT_NE(fingerprint(block_summaries(std::span(zeros).first(4096))[0]),
            fingerprint(block_summaries(std::span(zeros).first(4095))[0]));
}

TEST(PointerScan, FindsAlignedWordsInWindows) {
  std::vector<std::byte> data(64);
  const auto put = [&](size_t offset, uint64_t value) { std::memcpy(data.data() + offset, &value, 8); };
  const AddressRange windows[] = {{0x1000, 0x2000}, {0x9000, 0x9001}};
  put(0, 0x0fff);
  put(8, 0x1000);
  put(16, 0x1fff);
  put(24, 0x2000);
  put(32, 0x9000);
  put(40, 0x9001);
  const auto hits = pointer_scan(data, 0x700000, windows);
  ASSERT_EQ(hits.size(), 3u);
  EXPECT_EQ(hits[0].address, 0x700008u);
  EXPECT_EQ(hits[0].value, 0x1000u);
  EXPECT_EQ(hits[1].value, 0x1fffu);
  EXPECT_EQ(hits[2].address, 0x700020u);
}

TEST(PointerScan, AlignmentIsThatOfTheDevice) {
  std::vector<std::byte> data(24);
  const uint64_t value = 0x1234;
  std::memcpy(data.data() + 4, &value, 8);  // 8-byte aligned on the device
  const AddressRange windows[] = {{0x1234, 0x1235}};
  const auto hits = pointer_scan(data, 0x70000c, windows);
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_EQ(hits[0].address, 0x700010u);
  EXPECT_TRUE(pointer_scan(data, 0x700000, windows).empty());
  EXPECT_TRUE(pointer_scan(std::span(data).first(11), 0x70000c, windows).empty());
}

}  // namespace
}  // namespace foundry::device
