// Sections that are stored packed: read as if they were not, and hostile ones refused before memory is taken for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>
#include <functional>

#include "csrc/archive/packing.h"
#include "csrc/archive/reader.h"
#include "csrc/archive/writer.h"
#include "tests/unit/archive/support.h"

namespace foundry::archive::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kName = "graphs.fdry";

// Arguments as graphs have them: the same for each but for a few words; 9 MiB, which takes three frames.
std::vector<std::byte> arguments() {
  std::vector<std::byte> bytes((uint64_t{9} << 20) + 17);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 300'000 * 2654435761u >> 23);
  for (size_t i = 0; i < bytes.size(); i += 300'000) bytes[i] = static_cast<std::byte>(i >> 12);
  return bytes;
}

std::vector<std::byte> compressed(std::span<const std::byte> bytes) {
  std::vector<std::byte> out(ZSTD_compressBound(bytes.size()));
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
  return out;
}

class Packing : public ::testing::Test {
 protected:
  void write(bool compact) {
    FileWriter writer = must(FileWriter::create(directory_.fd(), kName, FileKind::graphs));
    writer.set_compact(compact);
    ASSERT_TRUE(writer.put<Section::arguments>(arguments_).ok());
    ASSERT_TRUE(writer.put<Section::edges>(edges_).ok());
    ASSERT_TRUE(writer.put<Section::params>(params_).ok());
    must(writer.finish());
  }
  Result<File> open() const { return File::open(directory_.fd(), kName, FileKind::graphs); }

  // Opens a copy whose arguments are these bytes, said to be `count` bytes when unpacked, with all hashes right.
  Error hostile(std::span<const std::byte> stored, uint64_t count, uint32_t packing = 1) {
    TemporaryDirectory other;
    FileWriter writer = must(FileWriter::create(other.fd(), kName, FileKind::graphs));
    EXPECT_TRUE(writer.put<Section::arguments>(stored).ok());
    must(writer.finish());
    std::vector<std::byte> file = read_file(other.at(kName));
    FileHeader header;
    std::memcpy(&header, file.data(), sizeof header);
    for (uint32_t i = 0; i < header.section_count; ++i) {
      std::byte* at = file.data() + header.directory_offset + i * sizeof(SectionEntry);
      SectionEntry entry;
      std::memcpy(&entry, at, sizeof entry);
      if (entry.type != static_cast<uint32_t>(Section::arguments)) continue;
      entry.packing = packing;
      entry.count = count;
      std::memcpy(at, &entry, sizeof entry);
    }
    seal(file);
    write_file(other.at(kName), file);
    Result<File> opened = File::open(other.fd(), kName, FileKind::graphs);
    if (opened.ok()) {
      ADD_FAILURE() << "the hostile file was accepted";
      return {};
    }
    return std::move(opened).error();
  }

  TemporaryDirectory directory_;
  const std::vector<std::byte> arguments_ = arguments();
  const std::vector<EdgeRecord> edges_ = std::vector<EdgeRecord>(1000);
  const std::vector<ParamRecord> params_ = {{0, 8}, {8, 4}};
};

TEST_F(Packing, ReadsAsIfNothingWerePacked) {
  write(true);
  const File file = must(open());
  const auto arguments = file.section<Section::arguments>();
  ASSERT_EQ(arguments.size(), arguments_.size());
  EXPECT_EQ(std::memcmp(arguments.data(), arguments_.data(), arguments_.size()), 0);
  const auto edges = file.section<Section::edges>();
  ASSERT_EQ(edges.size(), edges_.size());
  EXPECT_EQ(std::memcmp(edges.data(), edges_.data(), edges.size_bytes()), 0);
  EXPECT_EQ(file.section<Section::params>().size(), 2u);
  EXPECT_TRUE(file.section<Section::nodes>().empty());
  for (const auto section : {Section::arguments, Section::edges, Section::params}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.raw_section(section).data()) % 8, 0u);
  }
  EXPECT_LT(file.bytes(), arguments_.size() / 10);
}

TEST_F(Packing, NothingIsPackedUnasked) {
  write(false);
  EXPECT_GT(must(open()).bytes(), arguments_.size());
}

TEST_F(Packing, WhatDoesNotShrinkIsStoredAsItIs) {
  std::vector<std::byte> random(100'000);
  uint32_t state = 1;
  for (std::byte& byte : random) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  EXPECT_FALSE(must(pack(random)).has_value());
  EXPECT_FALSE(must(pack({})).has_value());
  const auto packed = must(pack(arguments_));
  ASSERT_TRUE(packed.has_value());
  EXPECT_EQ(must(packed_frames(*packed, arguments_.size())).size(), 3u);
}

TEST_F(Packing, DamageOfAnyByteIsFound) {
  write(true);
  const std::vector<std::byte> whole = read_file(directory_.at(kName));
  for (size_t at = 0; at < whole.size(); at += 1 + whole.size() / 257) {
    std::vector<std::byte> file = whole;
    file[at] ^= std::byte{0x10};
    write_file(directory_.at(kName), file);
    const auto opened = open();
    ASSERT_FALSE(opened.ok()) << at;
  }
}

// Whoever writes matching hashes still cannot make a reader overrun or take memory for what is not there.
TEST_F(Packing, HostileFrames) {
  const std::vector<std::byte> bytes(1000, std::byte{7});
  const std::vector<std::byte> frame = compressed(bytes);
  EXPECT_THAT(hostile(frame, 999).text, AllOf(HasSubstr("section arguments"), HasSubstr("the size it must have")));
  EXPECT_THAT(hostile(frame, 1001).text, HasSubstr("the size it must have"));
  EXPECT_THAT(hostile(frame, 1000, 2).text, HasSubstr("packed in way 2"));
  EXPECT_THAT(hostile(frame, 1000, 0).text, HasSubstr("bytes for"));
  EXPECT_THAT(hostile(frame, uint64_t{1} << 60).text, HasSubstr("at most"));
  EXPECT_THAT(hostile(frame, uint64_t{64} << 20).text, HasSubstr("the size it must have"));
  EXPECT_THAT(hostile(std::span(frame).first(frame.size() - 1), 1000).text, HasSubstr("no whole zstd frame"));
  EXPECT_THAT(hostile(bytes, 2000).text, HasSubstr("no whole zstd frame"));
  EXPECT_THAT(hostile({}, 1000).text, HasSubstr("bytes for"));
  EXPECT_THAT(hostile(frame, 0).text, HasSubstr("bytes for"));
  EXPECT_THAT(hostile(frame, frame.size() - 1).text, HasSubstr("bytes for"));
  std::vector<std::byte> two = frame;
  two.insert(two.end(), frame.begin(), frame.end());
  EXPECT_THAT(hostile(two, 1000).text, HasSubstr("behind its last frame"));
  EXPECT_THAT(hostile(two, 2000).text, HasSubstr("the size it must have"));  // one frame would do
}

TEST_F(Packing, ClaimsBeyondTheLimitTakeNoMemory) {
  const std::vector<std::byte> frame = compressed(std::vector<std::byte>(kPackedBytes));
  std::vector<std::byte> bomb;
  for (uint64_t claimed = 0; claimed <= kMostUnpackedBytes; claimed += kPackedBytes)
    bomb.insert(bomb.end(), frame.begin(), frame.end());
  EXPECT_THAT(hostile(bomb, bomb.size() / frame.size() * kPackedBytes).text, HasSubstr("claim more than"));
}

TEST_F(Packing, AFrameThatDoesNotDecodeIsAnError) {
  std::vector<std::byte> noise(1000);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<std::byte>('a' + (i * i >> 3) % 7);
  const std::vector<std::byte> frame = compressed(noise);
  int failed = 0;
  for (size_t at = 9; at < frame.size(); ++at) {
    std::vector<std::byte> damaged = frame;
    damaged[at] ^= std::byte{0xff};
    const auto frames = packed_frames(damaged, noise.size());
    if (!frames.ok()) continue;
    std::vector<std::byte> out(noise.size());
    failed += unpack(frames.value()[0], out) ? 0 : 1;
  }
  EXPECT_GT(failed, 0);
  std::vector<std::byte> small(noise.size() - 1);
  EXPECT_FALSE(unpack(must(packed_frames(frame, noise.size()))[0], small));
}

}  // namespace
}  // namespace foundry::archive::test
