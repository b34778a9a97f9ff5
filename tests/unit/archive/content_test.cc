// The content store: zero blocks vanish, equal ones are stored once, and everything comes back as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>

#include "csrc/archive/content.h"
#include "csrc/archive/reader.h"
#include "csrc/archive/validate.h"
#include "tests/unit/archive/support.h"

namespace foundry::archive::test {
namespace {

constexpr uint64_t kBase = 0x140000000000, kMiB = 1 << 20;

class Content : public ::testing::Test {
 protected:
  using Ranges = std::map<uint64_t, std::vector<std::byte>>;

  // Writes the ranges into a memory file whose mapped section covers them.
  ContentStatistics store(const Ranges& ranges, const ContentOptions& options = {}) {
    FileWriter file = must(FileWriter::create(directory_.fd(), "memory.fdry", FileKind::memory));
    const ZoneRecord zone{file.strings().add("graphs"), 3, 2 << 20, kBase, 1024 * kMiB, kBase + 512 * kMiB};
    EXPECT_TRUE(file.put<Section::zones>({&zone, 1}).ok());
    const MappedRecord mapped{kBase, 512 * kMiB, 0, 0};
    EXPECT_TRUE(file.put<Section::mapped>({&mapped, 1}).ok());
    ContentWriter writer = must(ContentWriter::create(file, options));
    for (const auto& [address, bytes] : ranges) {
      const Status added = writer.add(address, bytes);
      EXPECT_TRUE(added.ok()) << added.error().text;
    }
    const ContentStatistics statistics = must(writer.finish());
    must(file.finish());
    return statistics;
  }

  // Reads everything back and compares; bytes that no record covers must have been zero.
  void expect_restores(const Ranges& ranges) {
    const File file = must(File::open(directory_.fd(), "memory.fdry", FileKind::memory));
    const Status valid = validate(file);
    ASSERT_TRUE(valid.ok()) << valid.error().text;
    Ranges restored;
    for (const auto& [address, bytes] : ranges) restored[address].resize(bytes.size());
    const auto content = file.section<Section::content>();
    uint64_t pieces = 0;
    for (const ContentUnit& unit : must(content_units(file.section<Section::content_blocks>(), content))) {
      std::vector<std::byte> decoded(unit.decoded_bytes);
      const Status status = decode_unit(unit, content, decoded);
      ASSERT_TRUE(status.ok()) << status.error().text;
      if (unit.encoding == Encoding::raw) {
        const auto raw = raw_unit(unit, content);
        ASSERT_TRUE(std::equal(raw.begin(), raw.end(), decoded.begin(), decoded.end()));
      } else {
        EXPECT_TRUE(raw_unit(unit, content).empty());
      }
      for (const ContentUnit::Piece& piece : unit.pieces) {
        ++pieces;
        auto range = restored.upper_bound(piece.address);
        ASSERT_NE(range, restored.begin());
        --range;
        ASSERT_LE(piece.address + piece.bytes, range->first + range->second.size());
        std::copy_n(decoded.begin() + static_cast<std::ptrdiff_t>(piece.offset), piece.bytes,
                    range->second.begin() + static_cast<std::ptrdiff_t>(piece.address - range->first));
      }
    }
    EXPECT_EQ(pieces, file.section<Section::content_blocks>().size());
    EXPECT_TRUE(restored == ranges);
  }

  std::vector<std::byte> noise(uint64_t bytes) {
    std::vector<std::byte> out(bytes);
    for (std::byte& b : out) b = static_cast<std::byte>(random_());
    return out;
  }
  static std::vector<std::byte> text(uint64_t bytes, int salt) {
    std::vector<std::byte> out(bytes);
    for (uint64_t i = 0; i < bytes; ++i)
      out[i] = static_cast<std::byte>((i / 64 * 31 + static_cast<uint64_t>(salt)) % 251);
    return out;
  }

  TemporaryDirectory directory_;
  std::mt19937_64 random_{7};
};

TEST_F(Content, ZeroMemoryTakesNoSpace) {
  const Ranges ranges{{kBase, std::vector<std::byte>(32 * kMiB)}};
  const ContentStatistics statistics = store(ranges);
  EXPECT_EQ(statistics.zero_bytes, 32 * kMiB);
  EXPECT_EQ(statistics.stored_bytes, 0u);
  EXPECT_EQ(statistics.records, 0u);
  expect_restores(ranges);
}

TEST_F(Content, NothingAtAll) {
  const ContentStatistics statistics = store({});
  EXPECT_EQ(statistics.records, 0u);
  expect_restores({});
}

TEST_F(Content, EqualBlocksAreStoredOnce) {
  for (const bool compress : {false, true}) {
    const auto block = noise(kContentBlockBytes);
    std::vector<std::byte> repeated;
    for (int i = 0; i < 40; ++i) repeated.insert(repeated.end(), block.begin(), block.end());
    const Ranges ranges{{kBase, repeated}, {kBase + 100 * kMiB, block}};
    if (compress) unlinkat(directory_.fd(), "memory.fdry", 0);
    const ContentStatistics statistics = store(ranges, {compress, 1, 0.1});
    EXPECT_EQ(statistics.equal_bytes, 40 * kContentBlockBytes);
    EXPECT_LE(statistics.stored_bytes, kContentBlockBytes);
    expect_restores(ranges);
  }
}

TEST_F(Content, EqualBlocksInsideCompressedUnitsOfLongAgo) {
  Ranges ranges;
  for (int i = 0; i < 12; ++i) ranges[kBase + static_cast<uint64_t>(i) * 8 * kMiB] = text(4 * kMiB, i);
  // Blocks of the first units, in another order, far behind.
  std::vector<std::byte> mixed;
  for (int i = 0; i < 12; ++i) {
    const auto& unit = ranges[kBase + static_cast<uint64_t>(11 - i) * 8 * kMiB];
    mixed.insert(mixed.end(), unit.begin() + i * 65536, unit.begin() + (i + 2) * 65536);
  }
  ranges[kBase + 200 * kMiB] = mixed;
  const ContentStatistics statistics = store(ranges);
  EXPECT_GE(statistics.equal_bytes, mixed.size());
  EXPECT_LT(statistics.stored_bytes, 4 * kMiB);
  expect_restores(ranges);
}

TEST_F(Content, BlocksFollowAddressesAndNeighboursShareAUnit) {
  const Ranges ranges{{kBase + 1000, noise(3 * kContentBlockBytes)},
                      {kBase + 2 * kMiB + 5, noise(17)},
                      {kBase + 4 * kMiB, text(9 * kMiB, 1)}};
  const ContentStatistics statistics = store(ranges);
  EXPECT_EQ(statistics.bytes_seen, 3 * kContentBlockBytes + 17 + 9 * kMiB);
  EXPECT_LE(statistics.units, 4u);
  expect_restores(ranges);
  const File file = must(File::open(directory_.fd(), "memory.fdry", FileKind::memory));
  EXPECT_EQ(file.section<Section::content_blocks>()[0].bytes, 3 * kContentBlockBytes)
      << "contiguous blocks are one record";
}

TEST_F(Content, ZeroBlocksAreCutOutOfTheMiddle) {
  auto bytes = noise(5 * kContentBlockBytes);
  std::fill_n(bytes.begin() + 2 * kContentBlockBytes, kContentBlockBytes, std::byte{0});
  bytes[4 * kContentBlockBytes] = std::byte{0};  // a zero byte at the start is no zero block
  const Ranges ranges{{kBase, bytes}};
  const ContentStatistics statistics = store(ranges);
  EXPECT_EQ(statistics.zero_bytes, kContentBlockBytes);
  EXPECT_EQ(statistics.records, 2u);
  expect_restores(ranges);
}

TEST_F(Content, NoiseIsStoredRawAndTextIsNot) {
  EXPECT_EQ(store({{kBase, noise(8 * kMiB)}}).stored_bytes, 8 * kMiB);
  unlinkat(directory_.fd(), "memory.fdry", 0);
  EXPECT_LT(store({{kBase, text(8 * kMiB, 3)}}).stored_bytes, kMiB);
  unlinkat(directory_.fd(), "memory.fdry", 0);
  EXPECT_GT(store({{kBase, text(8 * kMiB, 3)}}, {false, 1, 0.1}).stored_bytes, kMiB);
}

TEST_F(Content, RandomRanges) {
  for (int round = 0; round < 10; ++round) {
    unlinkat(directory_.fd(), "memory.fdry", 0);
    Ranges ranges;
    const auto shared = noise(2 * kMiB);
    for (uint64_t at = kBase + random_() % 4096; at < kBase + 60 * kMiB; at += random_() % kMiB + 3 * kMiB) {
      std::vector<std::byte> bytes(random_() % (3 * kMiB));
      for (size_t k = 0; k < bytes.size();) {
        const size_t take = std::min<size_t>(bytes.size() - k, random_() % 200000);
        const uint64_t what = random_() % 3;
        for (size_t i = 0; i < take; ++i) {
          bytes[k + i] = what == 0   ? std::byte{0}
                         : what == 1 ? shared[(at + k + i) % shared.size()]
                                     : std::byte(i / 100);
        }
        k += take + 1;
      }
      ranges[at] = std::move(bytes);
    }
    store(ranges);
    expect_restores(ranges);
  }
}

TEST_F(Content, DamagedUnitsAreErrors) {
  store({{kBase, text(4 * kMiB, 9)}});
  const File file = must(File::open(directory_.fd(), "memory.fdry", FileKind::memory));
  const auto records = file.section<Section::content_blocks>();
  const auto content = file.section<Section::content>();
  ASSERT_EQ(records[0].encoding, static_cast<uint32_t>(Encoding::zstd));
  const ContentUnit unit = must(content_units(records, content))[0];
  std::vector<std::byte> out(unit.decoded_bytes);
  EXPECT_FALSE(decode_unit(unit, content.first(unit.stored_bytes - 1), out).ok());
  EXPECT_FALSE(decode_unit(unit, content, std::span(out).first(out.size() - 1)).ok());
  ContentUnit longer = unit;
  longer.decoded_bytes = out.size() + 1;
  std::vector<std::byte> more(out.size() + 1);
  EXPECT_FALSE(decode_unit(longer, content, more).ok());
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {  // damage that a hash would have shown must still not reach outside
    std::vector<std::byte> bad(content.begin(), content.end());
    for (int k = 0; k < 4; ++k) bad[random() % bad.size()] = static_cast<std::byte>(random());
    const auto units = content_units(records, bad);
    if (!units.ok()) continue;
    std::vector<std::byte> target(units.value()[0].decoded_bytes);
    static_cast<void>(decode_unit(units.value()[0], bad, target).ok());
  }
  ContentRecord beyond = records[0];
  beyond.decoded_offset = static_cast<uint32_t>(kContentUnitBytes);
  EXPECT_FALSE(content_units({&beyond, 1}, content).ok());
  beyond.decoded_offset = 1;
  EXPECT_FALSE(content_units({&beyond, 1}, content).ok());
}

TEST_F(Content, AddressesThatWrapAreRefused) {
  FileWriter file = must(FileWriter::create(directory_.fd(), "m", FileKind::memory));
  ContentWriter writer = must(ContentWriter::create(file));
  EXPECT_FALSE(writer.add(~uint64_t{0} - 3, std::vector<std::byte>(8)).ok());
}

}  // namespace
}  // namespace foundry::archive::test
