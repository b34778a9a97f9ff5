// Sizes of code images from hostile bytes.
#include "csrc/hook/image_bytes.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

namespace foundry::hook {
namespace {

ReadImage reader(const std::string& bytes) {
  return [&bytes](uint64_t offset, void* out, size_t count) {
    if (offset > bytes.size() || count > bytes.size() - offset) return false;
    std::memcpy(out, bytes.data() + offset, count);
    return true;
  };
}

template <class T>
void put(std::string& bytes, size_t offset, const T& value) {
  if (bytes.size() < offset + sizeof value) bytes.resize(offset + sizeof value);
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

std::string fatbin(uint16_t header_bytes, uint64_t bytes) {
  std::string out;
  put(out, 0, kFatbinMagic);
  put(out, 4, uint16_t{1});
  put(out, 6, header_bytes);
  put(out, 8, bytes);
  return out;
}

// An ELF file with one section of each kind that matters, and its section headers at the end.
std::string elf(uint64_t section_bytes = 100) {
  std::string out;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shoff = 64 + section_bytes;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  put(out, 0, header);
  Elf64_Shdr null{}, bits{}, none{};
  bits.sh_type = SHT_PROGBITS;
  bits.sh_offset = 64;
  bits.sh_size = section_bytes;
  none.sh_type = SHT_NOBITS;
  none.sh_offset = 64;
  none.sh_size = uint64_t{1} << 62;  // occupies nothing in the file
  put(out, header.e_shoff, null);
  put(out, header.e_shoff + sizeof null, bits);
  put(out, header.e_shoff + 2 * sizeof null, none);
  return out;
}

Elf64_Ehdr* header_of(std::string& bytes) { return reinterpret_cast<Elf64_Ehdr*>(bytes.data()); }

TEST(ImageExtent, FatbinEndsWhereItsHeaderSays) {
  // Another container follows in the section: it is not part of this one.
  const std::string two = fatbin(16, 24) + std::string(24, 'x') + fatbin(16, 1000) + std::string(1000, 'y');
  const auto extent = image_extent(reader(two));
  ASSERT_TRUE(extent.ok()) << extent.error().text;
  EXPECT_EQ(extent.value().format, FOUNDRY_IMAGE_FATBIN);
  EXPECT_EQ(extent.value().bytes, 40u);
}

TEST(ImageExtent, FatbinThatOverflowsIsRefused) {
  for (const uint64_t bytes : {~uint64_t{0}, ~uint64_t{0} - 15, kMostImageBytes}) {
    const std::string hostile = fatbin(16, bytes);
    EXPECT_FALSE(image_extent(reader(hostile)).ok()) << bytes;
  }
  const std::string small_header = fatbin(15, 100);
  EXPECT_FALSE(image_extent(reader(small_header)).ok());
  const std::string cut = fatbin(16, 100).substr(0, 12);
  EXPECT_FALSE(image_extent(reader(cut)).ok());
}

TEST(ImageExtent, ElfEndsWithItsLastPart) {
  std::string file = elf();
  const uint64_t whole = file.size();
  file += "and more of the heap";
  const auto extent = image_extent(reader(file));
  ASSERT_TRUE(extent.ok()) << extent.error().text;
  EXPECT_EQ(extent.value().format, FOUNDRY_IMAGE_ELF);
  EXPECT_EQ(extent.value().bytes, whole);
}

TEST(ImageExtent, ElfSegmentsCount) {
  std::string file = elf();
  Elf64_Phdr segment{};
  segment.p_offset = 1000;
  segment.p_filesz = 234;
  const uint64_t at = file.size();
  put(file, at, segment);
  header_of(file)->e_phoff = at;
  header_of(file)->e_phnum = 1;
  header_of(file)->e_phentsize = sizeof segment;
  const auto extent = image_extent(reader(file));
  ASSERT_TRUE(extent.ok()) << extent.error().text;
  EXPECT_EQ(extent.value().bytes, 1234u);
}

TEST(ImageExtent, ElfWithMoreSectionsThanItsHeaderCanSay) {
  std::string file = elf();
  const uint64_t table = header_of(file)->e_shoff;
  header_of(file)->e_shnum = 0;
  Elf64_Shdr first{};
  first.sh_size = 3;
  put(file, table, first);
  const auto extent = image_extent(reader(file));
  ASSERT_TRUE(extent.ok()) << extent.error().text;
  EXPECT_EQ(extent.value().bytes, file.size());
}

TEST(ImageExtent, DamagedElfIsRefused) {
  const auto refused = [](const std::string& file) { return !image_extent(reader(file)).ok(); };
  std::string file = elf();
  header_of(file)->e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_TRUE(refused(file));
  file = elf();
  header_of(file)->e_shoff = ~uint64_t{0} - 8;
  EXPECT_TRUE(refused(file));
  file = elf();
  header_of(file)->e_shentsize = 1;
  EXPECT_TRUE(refused(file));
  file = elf();
  header_of(file)->e_shnum = 60000;  // beyond the bytes there are
  EXPECT_TRUE(refused(file));
  file = elf();
  // Section headers lie where they may: not aligned, hence put().
  put(file, header_of(file)->e_shoff + sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_offset), ~uint64_t{0});
  EXPECT_TRUE(refused(file));
  file = elf();
  put(file, header_of(file)->e_shoff + offsetof(Elf64_Shdr, sh_size), ~uint64_t{0});
  header_of(file)->e_shnum = 0;
  EXPECT_TRUE(refused(file));
  for (size_t cut = 4; cut < 64; ++cut) EXPECT_TRUE(refused(elf().substr(0, cut))) << cut;
}

TEST(ImageExtent, PtxEndsWithItsTerminator) {
  for (const size_t length : {size_t{20}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{100000}}) {
    std::string text = "//\n.version 8.0\n";
    text.resize(length, ' ');
    const std::string bytes = text + '\0' + std::string("\x01\x02", 2);
    const auto extent = image_extent(reader(bytes));
    ASSERT_TRUE(extent.ok()) << length << ": " << extent.error().text;
    EXPECT_EQ(extent.value().format, FOUNDRY_IMAGE_PTX);
    EXPECT_EQ(extent.value().bytes, length + 1);
  }
}

TEST(ImageExtent, TextAtTheVeryEndOfMemory) {
  const std::string bytes(".v\0", 3);
  const auto extent = image_extent(reader(bytes));
  ASSERT_TRUE(extent.ok()) << extent.error().text;
  EXPECT_EQ(extent.value().bytes, 3u);
}

TEST(ImageExtent, OtherBytesAreRefused) {
  EXPECT_FALSE(image_extent(reader(std::string())).ok());
  EXPECT_FALSE(image_extent(reader(std::string(1, '\0'))).ok());
  EXPECT_FALSE(image_extent(reader(std::string("\x7f"
                                               "ABC\0",
                                               5)))
                   .ok());
  EXPECT_FALSE(image_extent(reader(std::string(".version without an end"))).ok());
  EXPECT_FALSE(image_extent(reader(std::string(".version\x01\0", 10))).ok());
}

// Whatever the bytes, an extent never exceeds the limit, and reading ends.
TEST(ImageExtent, RandomDamage) {
  std::mt19937_64 random(20240601);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = round % 2 == 0 ? elf() : fatbin(16, 64) + std::string(64, 'z');
    for (int i = 0; i < 6; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto extent = image_extent(reader(bytes));
    if (!extent.ok()) continue;
    EXPECT_LE(extent.value().bytes, kMostImageBytes);
  }
}

struct WrapperBytes {
  uint32_t magic = kWrapperMagic, version = 1;
  const void* data = "data";
  const void* files = nullptr;
};

std::string bytes_of(const WrapperBytes& wrapper) { return {reinterpret_cast<const char*>(&wrapper), sizeof wrapper}; }

TEST(Unwrap, BothVersionsPointToTheImage) {
  for (const uint32_t version : {1u, 2u}) {
    WrapperBytes wrapper;
    wrapper.version = version;
    wrapper.files = version == 2 ? "the fatbins that were linked" : nullptr;
    const std::string bytes = bytes_of(wrapper);
    const auto unwrapped = unwrap(reader(bytes));
    ASSERT_TRUE(unwrapped.ok()) << unwrapped.error().text;
    EXPECT_TRUE(unwrapped.value().is_wrapper);
    EXPECT_EQ(unwrapped.value().data, wrapper.data);
  }
}

TEST(Unwrap, OtherImagesAreNone) {
  const std::string bytes = fatbin(16, 4);
  const auto unwrapped = unwrap(reader(bytes));
  ASSERT_TRUE(unwrapped.ok());
  EXPECT_FALSE(unwrapped.value().is_wrapper);
  const std::string tiny = "x";
  EXPECT_FALSE(unwrap(reader(tiny)).value().is_wrapper);
}

TEST(Unwrap, DamagedWrappersAreRefused) {
  WrapperBytes unknown;
  unknown.version = 3;
  const std::string version = bytes_of(unknown);
  EXPECT_FALSE(unwrap(reader(version)).ok());
  WrapperBytes empty;
  empty.data = nullptr;
  const std::string no_data = bytes_of(empty);
  EXPECT_FALSE(unwrap(reader(no_data)).ok());
  const std::string cut = bytes_of(WrapperBytes{}).substr(0, 12);
  EXPECT_FALSE(unwrap(reader(cut)).ok());
}

}  // namespace
}  // namespace foundry::hook
