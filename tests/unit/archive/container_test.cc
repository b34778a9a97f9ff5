// The container: what is written is read again, and any damage is one clear error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "csrc/archive/reader.h"
#include "csrc/archive/writer.h"
#include "tests/unit/archive/support.h"

namespace foundry::archive::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kName = "graphs.fdry";

class Container : public ::testing::Test {
 protected:
  Result<File> open(const ReadOptions& options = {}) const {
    return File::open(directory_.fd(), kName, FileKind::graphs, options);
  }
  void write(std::span<const std::byte> bytes) const { write_file(directory_.at(kName), bytes); }
  std::vector<std::byte> sample() const {
    GraphsContent().write(directory_.fd(), kName);
    return read_file(directory_.at(kName));
  }
  // Opens a changed copy, which must fail; returns the error.
  Error damage(std::vector<std::byte> file, const std::function<void(std::vector<std::byte>&)>& change) const {
    change(file);
    write(file);
    Result<File> opened = open();
    if (opened.ok()) {
      ADD_FAILURE() << "the damaged file was accepted";
      return {};
    }
    return std::move(opened).error();
  }
  static FileHeader header_of(const std::vector<std::byte>& file) {
    FileHeader header;
    std::memcpy(&header, file.data(), sizeof header);
    return header;
  }
  // Changes the header or one directory entry and makes all hashes right again.
  Error hostile_header(const std::function<void(FileHeader&)>& change) {
    return damage(sample_, [&](std::vector<std::byte>& file) {
      FileHeader header = header_of(file);
      change(header);
      std::memcpy(file.data(), &header, sizeof header);
      seal(file);
    });
  }
  Error hostile_entry(Section section, const std::function<void(SectionEntry&)>& change) {
    return damage(sample_, [&](std::vector<std::byte>& file) {
      const FileHeader header = header_of(file);
      for (uint32_t i = 0; i < header.section_count; ++i) {
        std::byte* at = file.data() + header.directory_offset + i * sizeof(SectionEntry);
        SectionEntry entry;
        std::memcpy(&entry, at, sizeof entry);
        if (entry.type != static_cast<uint32_t>(section)) continue;
        change(entry);
        std::memcpy(at, &entry, sizeof entry);
      }
      seal(file);
    });
  }

  TemporaryDirectory directory_;
  std::vector<std::byte> sample_ = sample();
};

TEST_F(Container, ReadsWhatWasWritten) {
  const GraphsContent content;
  const File file = must(open());
  auto equal = [](const auto& section, const auto& records) {
    return section.size() == records.size() && std::memcmp(section.data(), records.data(), section.size_bytes()) == 0;
  };
  EXPECT_TRUE(equal(file.section<Section::images>(), content.images));
  EXPECT_TRUE(equal(file.section<Section::functions>(), content.functions));
  EXPECT_TRUE(equal(file.section<Section::params>(), content.params));
  EXPECT_TRUE(equal(file.section<Section::kernels>(), content.kernels));
  EXPECT_TRUE(equal(file.section<Section::arguments>(), content.arguments));
  EXPECT_TRUE(equal(file.section<Section::edges>(), content.edges));
  EXPECT_TRUE(equal(file.section<Section::pointers>(), content.pointers));
  EXPECT_TRUE(file.section<Section::zones>().empty()) << "a section of another kind of file";
  EXPECT_EQ(file.view(file.section<Section::graphs>()[1].name), "decode/2");
  EXPECT_EQ(must(file.text(file.section<Section::module_globals>()[1].symbol)), "größe");
  EXPECT_EQ(file.bytes(), sample_.size());
  EXPECT_EQ(file.kind(), FileKind::graphs);
  for (const auto section : {Section::kernels, Section::arguments, Section::graphs_strings}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.raw_section(section).data()) % 8, 0u);
  }
}

TEST_F(Container, IdentityIsWhatTheWriterSaidAndTheInventoryMayDemandIt) {
  TemporaryDirectory other;
  const WrittenFile written = GraphsContent().write(other.fd(), kName);
  EXPECT_EQ(written.bytes, sample_.size());
  EXPECT_EQ(must(open()).identity(), written.identity) << "equal content must have equal identity";
  EXPECT_TRUE(open({written.identity, kMostFileBytes}).ok());
  Hash128 wrong = written.identity;
  wrong.bytes[3] ^= 1;
  const auto refused = open({wrong, kMostFileBytes});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(refused.error().text, AllOf(HasSubstr(hex(wrong)), HasSubstr("foundry.json")));
}

TEST_F(Container, EmptyFilesOfEveryKind) {
  for (const FileKind kind : {FileKind::graphs, FileKind::memory, FileKind::journal, FileKind::golden}) {
    const std::string name = std::string("empty_") + kind_name(kind);
    FileWriter writer = must(FileWriter::create(directory_.fd(), name, kind));
    must(writer.finish());
    const auto file = File::open(directory_.fd(), name, kind);
    ASSERT_TRUE(file.ok()) << file.error().text;
    EXPECT_EQ(must(read_kind(directory_.fd(), name)), kind);
  }
}

TEST_F(Container, EveryFlippedByteOfTheFileIsAnError) {
  for (size_t at = 0; at < sample_.size(); ++at) {
    const auto mask = std::byte{static_cast<uint8_t>(1u << at % 8)};
    std::vector<std::byte> file = sample_;
    file[at] ^= mask;
    write(file);
    const auto opened = open();
    ASSERT_FALSE(opened.ok()) << "byte " << at;
    EXPECT_THAT(opened.error().text, HasSubstr(kName));
  }
}

TEST_F(Container, EveryFlippedByteOfHeaderAndDirectoryIsAnErrorEvenWithRightHashes) {
  const FileHeader header = header_of(sample_);
  std::vector<size_t> places;
  for (size_t at = 0; at < offsetof(FileHeader, directory_hash); ++at) places.push_back(at);
  for (size_t at = header.directory_offset; at < sample_.size(); ++at) places.push_back(at);
  for (const size_t at : places) {
    for (const uint8_t mask : {0x01, 0x80, 0xff}) {
      const Error error = damage(sample_, [&](std::vector<std::byte>& file) {
        file[at] ^= std::byte{mask};
        seal(file);
      });
      EXPECT_THAT(error.text, HasSubstr(kName)) << "byte " << at;
    }
  }
}

TEST_F(Container, TruncationAtEveryLengthIsAnError) {
  for (size_t size = 0; size < sample_.size(); ++size) {
    write(std::span(sample_).first(size));
    const auto opened = open();
    ASSERT_FALSE(opened.ok()) << size << " bytes";
    EXPECT_EQ(opened.error().kind, ErrorKind::corrupt);
  }
}

TEST_F(Container, TrailingBytesAreAnError) {
  EXPECT_THAT(damage(sample_, [](auto& file) { file.resize(file.size() + 8); }).text, HasSubstr("it says"));
}

TEST_F(Container, OtherVersionsAreNamed) {
  const Error error = hostile_header([](FileHeader& header) { header.format_version = 7; });
  EXPECT_EQ(error.kind, ErrorKind::mismatch);
  EXPECT_THAT(error.text, AllOf(HasSubstr("version 7"), HasSubstr("version 1")));
  const Error section = hostile_entry(Section::kernels, [](SectionEntry& entry) { entry.version = 3; });
  EXPECT_EQ(section.kind, ErrorKind::mismatch);
  EXPECT_THAT(section.text, AllOf(HasSubstr("kernels"), HasSubstr("version 3"), HasSubstr("version 1")));
}

TEST_F(Container, OtherKindsAreNamed) {
  const auto opened = File::open(directory_.fd(), kName, FileKind::memory);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(opened.error().text, AllOf(HasSubstr("kind graphs"), HasSubstr("not memory")));
}

TEST_F(Container, HostileHeaders) {
  EXPECT_THAT(hostile_header([](FileHeader& h) { h.section_count = 0xffffffff; }).text, HasSubstr("sections"));
  EXPECT_THAT(hostile_header([](FileHeader& h) { h.directory_offset = ~uint64_t{7}; }).text, HasSubstr("directory"));
  EXPECT_THAT(hostile_header([](FileHeader& h) { h.directory_offset = 0; }).text, HasSubstr("directory"));
  EXPECT_THAT(hostile_header([](FileHeader& h) { h.file_bytes = ~uint64_t{0}; }).text, HasSubstr("it says"));
  EXPECT_THAT(hostile_header([](FileHeader& h) { h.reserved = 1; }).text, HasSubstr("reserved"));
}

TEST_F(Container, HostileDirectoryEntries) {
  const auto kernels = Section::kernels;
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.count = ~uint64_t{0}; }).text,
              AllOf(HasSubstr("section kernels"), HasSubstr("at most")));
  EXPECT_THAT(hostile_entry(kernels,
                            [](SectionEntry& e) {
                              e.count = uint64_t{1} << 60;
                              e.bytes = e.count * 56;
                            })
                  .text,
              HasSubstr("at most"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { ++e.count; }).text, HasSubstr("bytes for"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.offset = ~uint64_t{7}; }).text, HasSubstr("not inside"));
  EXPECT_THAT(hostile_entry(kernels,
                            [](SectionEntry& e) {
                              e.count = 1u << 20;
                              e.bytes = e.count * e.record_bytes;
                            })
                  .text,
              HasSubstr("not inside"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.offset += 4; }).text, HasSubstr("not inside"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.offset = 0; }).text, HasSubstr("not inside"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.offset -= 8; }).text, HasSubstr("overlaps"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.record_bytes = 8; }).text, HasSubstr("bytes a record"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.type = 2; }).text, HasSubstr("bytes a record"));
  EXPECT_THAT(hostile_entry(Section::memcpys,
                            [](SectionEntry& e) {
                              e.type = 10;
                              e.count = e.bytes;
                              e.record_bytes = 1;
                            })
                  .text,
              HasSubstr("twice"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.type = 999; }).text, HasSubstr("unknown"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.type = 65; }).text, HasSubstr("unknown"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.packing = 2; }).text, HasSubstr("packed in way 2"));
  EXPECT_THAT(hostile_entry(kernels, [](SectionEntry& e) { e.hash.bytes[0] ^= 1; }).text,
              AllOf(HasSubstr("section kernels"), HasSubstr("hash")));
}

TEST_F(Container, SizeLimitHolds) {
  const auto opened = open({std::nullopt, 100});
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().text, HasSubstr("100 B"));
}

TEST_F(Container, ReadsLargeSectionsInParallelAndFindsDamageInAnyChunk) {
  const std::string name = "memory.fdry";
  const size_t size = 3 * kHashChunkBytes + 12345;
  std::vector<std::byte> content(size);
  for (size_t i = 0; i < size; ++i) content[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  FileWriter writer = must(FileWriter::create(directory_.fd(), name, FileKind::memory));
  ASSERT_TRUE(writer.begin(Section::content).ok());
  for (size_t at = 0; at < size; at += 1000003) {
    EXPECT_EQ(must(writer.append(std::span(content).subspan(at, std::min<size_t>(1000003, size - at)))), at);
  }
  std::vector<std::byte> again(5000);
  ASSERT_TRUE(writer.read_back(kHashChunkBytes - 100, again).ok());
  EXPECT_EQ(std::memcmp(again.data(), content.data() + kHashChunkBytes - 100, again.size()), 0);
  EXPECT_FALSE(writer.read_back(size - 10, again).ok());
  ASSERT_TRUE(writer.end().ok());
  must(writer.finish());
  {
    const File file = must(File::open(directory_.fd(), name, FileKind::memory));
    const auto read = file.section<Section::content>();
    ASSERT_EQ(read.size(), size);
    EXPECT_EQ(std::memcmp(read.data(), content.data(), size), 0);
  }
  std::vector<std::byte> bytes = read_file(directory_.at(name));
  for (const size_t at : {size_t{72}, kHashChunkBytes + 72, 2 * kHashChunkBytes + 71, size + 71}) {
    bytes[at] ^= std::byte{4};
    write_file(directory_.at(name), bytes);
    const auto opened = File::open(directory_.fd(), name, FileKind::memory);
    ASSERT_FALSE(opened.ok()) << at;
    EXPECT_THAT(opened.error().text, HasSubstr("section content"));
    bytes[at] ^= std::byte{4};
  }
}

TEST_F(Container, LaterChangesOfTheFileDoNotReachReaders) {
  const File file = must(open());
  ASSERT_EQ(truncate(directory_.at(kName).c_str(), 0), 0);
  EXPECT_EQ(file.view(file.section<Section::graphs>()[0].name), "decode/1");
}

TEST_F(Container, StringsOutsideTheSectionAreErrors) {
  const File file = must(open());
  const auto size = static_cast<uint32_t>(file.raw_section(Section::graphs_strings).size());
  EXPECT_TRUE(file.text({size, 0}).ok());
  EXPECT_FALSE(file.text({size, 1}).ok());
  EXPECT_FALSE(file.text({0, size + 1}).ok());
  EXPECT_FALSE(file.text({0xffffffff, 0xffffffff}).ok());
  EXPECT_EQ(file.view({0xffffffff, 0xffffffff}), "");
}

TEST(Strings, AreInternedAndUtf8) {
  StringTable table;
  const StringRef first = table.add("kernel"), empty = table.add(""), again = table.add("kernel"),
                  other = table.add("kern");
  EXPECT_EQ(first.offset, again.offset);
  EXPECT_EQ(empty.bytes, 0u);
  EXPECT_EQ(other.bytes, 4u);
  EXPECT_EQ(table.bytes().size(), 10u);
  EXPECT_EQ(table.problem(), "");
  table.add("\xff");
  EXPECT_NE(table.problem(), "");
  for (const std::string_view good : {"", "plain", "größe", "\xe2\x82\xac", "\xf0\x9f\x98\x80"})
    EXPECT_TRUE(is_text(good)) << good;
  for (const std::string_view bad :
       {std::string_view("a\0b", 3), std::string_view("\x80"), std::string_view("\xc0\x80"), std::string_view("\xc3"),
        std::string_view("\xe0\x80\x80"), std::string_view("\xed\xa0\x80"), std::string_view("\xf4\x90\x80\x80"),
        std::string_view("\xf0\x80\x80\x80"), std::string_view("\xe2\x82"), std::string_view("\xe2\x28\xa1")}) {
    EXPECT_FALSE(is_text(bad));
  }
}

TEST_F(Container, WriterRefusesMisuse) {
  EXPECT_FALSE(FileWriter::create(directory_.fd(), kName, FileKind::graphs).ok()) << "the file exists";
  EXPECT_FALSE(FileWriter::create(directory_.fd(), "../escape", FileKind::graphs).ok());
  FileWriter writer = must(FileWriter::create(directory_.fd(), "w", FileKind::memory));
  EXPECT_FALSE(writer.put<Section::nodes>({}).ok()) << "a section of another kind";
  EXPECT_FALSE(writer.append({}).ok());
  EXPECT_FALSE(writer.end().ok());
  ASSERT_TRUE(writer.begin(Section::zones).ok());
  EXPECT_FALSE(writer.put<Section::dims>({}).ok()) << "another section is open";
  EXPECT_FALSE(writer.finish().ok());
  ASSERT_TRUE(writer.append(bytes_of("no whole record")).ok());
  EXPECT_FALSE(writer.end().ok());

  FileWriter twice = must(FileWriter::create(directory_.fd(), "t", FileKind::memory));
  ASSERT_TRUE(twice.put<Section::dims>({}).ok());
  EXPECT_FALSE(twice.put<Section::dims>({}).ok());
  must(twice.finish());
  EXPECT_FALSE(twice.finish().ok());

  FileWriter text = must(FileWriter::create(directory_.fd(), "u", FileKind::memory));
  text.strings().add("\xff");
  EXPECT_FALSE(text.finish().ok());
  EXPECT_FALSE(File::open(directory_.fd(), "u", FileKind::memory).ok()) << "an unfinished file has no valid header";

  FileWriter many = must(FileWriter::create(directory_.fd(), "z", FileKind::memory));
  const auto refused = many.put<Section::zones>(std::vector<ZoneRecord>(65));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
}

TEST(Hash, KnownValuesAndForms) {
  EXPECT_EQ(hex(hash({})), "99aa06d3014798d86001c324468d497f");  // xxh3-128 of nothing, seed 0
  Hasher streaming;
  streaming.add(bytes_of("fo"));
  streaming.add(bytes_of("undry"));
  EXPECT_EQ(streaming.digest(), hash(bytes_of("foundry")));
  Hash128 parsed;
  EXPECT_TRUE(parse_hex(hex(hash(bytes_of("x"))), &parsed));
  EXPECT_EQ(parsed, hash(bytes_of("x")));
  for (const char* bad : {"", "99aa06d3014798d86001c324468d497", "99AA06d3014798d86001c324468d497f",
                          "../a06d3014798d86001c324468d497f"}) {
    EXPECT_FALSE(parse_hex(bad, &parsed)) << bad;
  }
}

TEST(Hash, SectionHashIsOverChunks) {
  std::vector<std::byte> bytes(kHashChunkBytes + 1, std::byte{5});
  const Hash128 chunks[] = {hash(std::span(bytes).first(kHashChunkBytes)), hash(std::span(bytes).last(1))};
  EXPECT_EQ(section_hash(bytes), combine_chunks(chunks));
  EXPECT_EQ(section_hash({}), hash({}));
  SectionHasher pieces;
  for (size_t at = 0; at < bytes.size(); at += 777777)
    pieces.add(std::span(bytes).subspan(at, std::min<size_t>(777777, bytes.size() - at)));
  EXPECT_EQ(pieces.finish(), section_hash(bytes));
  SectionHasher exact;
  exact.add(std::span(bytes).first(kHashChunkBytes));
  EXPECT_EQ(exact.finish(), combine_chunks(std::span(chunks).first(1))) << "no empty chunk at the end";
}

}  // namespace
}  // namespace foundry::archive::test
