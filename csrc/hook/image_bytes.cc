#include "csrc/hook/image_bytes.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "csrc/base/text.h"

namespace foundry::hook {
namespace {

struct WrapperHeader {
  uint32_t magic;
  uint32_t version;
  const void* data;
  const void* files;  // version 1: unused; 2: the fatbins that were linked
};

struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;  // behind the header
};

Error corrupt(std::string text) { return Error{ErrorKind::corrupt, 0, std::move(text)}; }

// Keeps the end of the furthest [offset, offset + bytes); false if it leaves what an image may have.
bool extend(uint64_t& end, uint64_t offset, uint64_t bytes) {
  uint64_t here = 0;
  if (__builtin_add_overflow(offset, bytes, &here) || here > kMostImageBytes) return false;
  end = std::max(end, here);
  return true;
}

Result<ImageExtent> fatbin_extent(const ReadImage& read) {
  FatbinHeader header;
  if (!read(0, &header, sizeof header)) return corrupt("a fatbin ends within its header");
  uint64_t end = 0;
  if (header.header_bytes < sizeof header || !extend(end, header.header_bytes, header.bytes)) {
    return corrupt(format("a fatbin says that it has %u + %llu bytes", header.header_bytes,
                          static_cast<unsigned long long>(header.bytes)));
  }
  return ImageExtent{FOUNDRY_IMAGE_FATBIN, end};
}

template <class Header>
Result<std::vector<Header>> headers(const ReadImage& read, uint64_t offset, uint64_t count, size_t entry_bytes,
                                    const char* what, uint64_t& end) {
  std::vector<Header> list;
  if (count == 0) return list;
  if (entry_bytes != sizeof(Header)) return corrupt(format("an ELF image has %s of %zu bytes", what, entry_bytes));
  // Bounds the allocation: a cubin of 8 GiB could not hold more.
  if (count > (uint64_t{1} << 22) || !extend(end, offset, count * sizeof(Header))) {
    return corrupt(format("an ELF image says that it has %llu %s", static_cast<unsigned long long>(count), what));
  }
  list.resize(count);
  if (!read(offset, list.data(), count * sizeof(Header)))
    return corrupt(format("an ELF image ends within its %s", what));
  return list;
}

Result<ImageExtent> elf_extent(const ReadImage& read) {
  Elf64_Ehdr elf;
  if (!read(0, &elf, sizeof elf)) return corrupt("an ELF image ends within its header");
  if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_ident[EI_DATA] != ELFDATA2LSB) {
    return corrupt("an ELF image is not 64-bit little endian");
  }
  uint64_t end = sizeof elf;
  uint64_t section_count = elf.e_shnum;
  if (elf.e_shoff != 0 && section_count == 0) {  // more than 65279 sections: the first one says how many
    FOUNDRY_ASSIGN(const std::vector<Elf64_Shdr> first,
                   headers<Elf64_Shdr>(read, elf.e_shoff, 1, elf.e_shentsize, "section headers", end));
    section_count = first[0].sh_size;
  }
  if (elf.e_shoff == 0) section_count = 0;
  FOUNDRY_ASSIGN(const std::vector<Elf64_Shdr> sections,
                 headers<Elf64_Shdr>(read, elf.e_shoff, section_count, elf.e_shentsize, "section headers", end));
  FOUNDRY_ASSIGN(const std::vector<Elf64_Phdr> segments,
                 headers<Elf64_Phdr>(read, elf.e_phoff, elf.e_phnum, elf.e_phentsize, "program headers", end));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS) continue;
    if (!extend(end, section.sh_offset, section.sh_size)) return corrupt("an ELF image has a section beyond any file");
  }
  for (const Elf64_Phdr& segment : segments) {
    if (!extend(end, segment.p_offset, segment.p_filesz)) return corrupt("an ELF image has a segment beyond any file");
  }
  return ImageExtent{FOUNDRY_IMAGE_ELF, end};
}

bool is_text(const unsigned char* bytes, size_t count) {
  const auto readable = [](unsigned char c) { return (c >= 0x20 && c != 0x7f) || (c >= '\t' && c <= '\r'); };
  return std::all_of(bytes, bytes + count, readable);
}

Result<ImageExtent> ptx_extent(const ReadImage& read) {
  // The bytes up to the terminator are all there must be, so a step that is not readable is tried in halves.
  constexpr size_t kStep = 4096;
  std::vector<unsigned char> text(kStep);
  uint64_t offset = 0;
  while (offset < kMostPtxBytes) {
    size_t step = kStep;
    while (step > 0 && !read(offset, text.data(), step)) step /= 2;
    if (step == 0) break;
    const auto* zero = static_cast<const unsigned char*>(std::memchr(text.data(), 0, step));
    const size_t length = zero == nullptr ? step : static_cast<size_t>(zero - text.data());
    if (!is_text(text.data(), length) || offset + length == 0) {
      return corrupt("an image is neither a fatbin nor an ELF file nor PTX text");
    }
    if (zero != nullptr) return ImageExtent{FOUNDRY_IMAGE_PTX, offset + length + 1};
    offset += step;
  }
  return corrupt("PTX text without an end");
}

}  // namespace

Result<ImageExtent> image_extent(const ReadImage& read) {
  unsigned char magic[4] = {};
  if (!read(0, magic, sizeof magic)) return ptx_extent(read);  // shorter than a header: at most text
  uint32_t word = 0;
  std::memcpy(&word, magic, sizeof word);
  if (word == kFatbinMagic) return fatbin_extent(read);
  if (std::memcmp(magic, ELFMAG, SELFMAG) == 0) return elf_extent(read);
  return ptx_extent(read);
}

Result<Wrapper> unwrap(const ReadImage& read) {
  WrapperHeader header{};
  if (!read(0, &header.magic, sizeof header.magic) || header.magic != kWrapperMagic) return Wrapper{};
  if (!read(0, &header, sizeof header)) return corrupt("a fatbin wrapper ends within its header");
  if (header.version != 1 && header.version != 2)
    return corrupt(format("a fatbin wrapper of version %u", header.version));
  if (header.data == nullptr) return corrupt("a fatbin wrapper without data");
  return Wrapper{true, header.data};
}

}  // namespace foundry::hook
