// Fatbins: what is kept for a GPU, and that no bytes make the parser read outside. Cubins: their variables.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "csrc/archive/elf_globals.h"
#include "csrc/archive/fatbin.h"
#include "tests/unit/archive/support.h"

namespace foundry::archive::test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSpecific = 0x100000, kFamily = 0x200000, kZstd = 0x8000, kLz4 = 0x2000;

struct Code {
  uint16_t kind;
  uint32_t arch;
  uint64_t flags;
  std::string payload;
};

template <class T>
void put(std::vector<std::byte>& out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}

// A container as fatbinary writes it.
std::vector<std::byte> make_fatbin(const std::vector<Code>& codes) {
  std::vector<std::byte> out(16);
  put<uint32_t>(out, 0, 0xba55ed50);
  put<uint16_t>(out, 4, 1);
  put<uint16_t>(out, 6, 16);
  for (const Code& code : codes) {
    std::string payload = code.payload;
    if ((code.flags & kZstd) != 0) {
      payload.resize(ZSTD_compressBound(code.payload.size()));
      payload.resize(ZSTD_compress(payload.data(), payload.size(), code.payload.data(), code.payload.size(), 3));
    }
    const size_t at = out.size(), compressed = payload.size();
    payload.resize((payload.size() + 7) / 8 * 8);
    out.resize(at + 64);
    put<uint16_t>(out, at, code.kind);
    put<uint16_t>(out, at + 2, 0x0101);
    put<uint32_t>(out, at + 4, 64);
    put<uint64_t>(out, at + 8, payload.size());
    put<uint32_t>(out, at + 28, code.arch);
    put<uint64_t>(out, at + 40, code.flags | 0x11);
    if ((code.flags & (kZstd | kLz4)) != 0) {
      put<uint32_t>(out, at + 16, static_cast<uint32_t>(compressed));
      put<uint64_t>(out, at + 56, code.payload.size());
    }
    const auto bytes = bytes_of(payload);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  put<uint64_t>(out, 8, out.size() - 16);
  return out;
}

std::vector<std::pair<uint32_t, std::string>> kept(const SlimImage& slim) {
  std::vector<std::pair<uint32_t, std::string>> out;
  for (const FatbinEntry& entry : must(fatbin_entries(slim.image))) {
    const auto payload = must(fatbin_payload(slim.image, entry));
    out.emplace_back(entry.arch, std::string(reinterpret_cast<const char*>(payload.data())));
  }
  return out;
}

using Kept = std::vector<std::pair<uint32_t, std::string>>;

const std::vector<Code> kUsual = {
    {2, 75, 0, "elf75"},          {2, 80, 0, "elf80"}, {2, 86, 0, "elf86"}, {2, 90, 0, "elf90"},
    {2, 90, kSpecific, "elf90a"}, {1, 90, 0, "ptx90"}, {1, 75, 0, "ptx75"},
};

TEST(Slim, KeepsTheCodeThatTheGpuUses) {
  const auto image = make_fatbin(kUsual);
  EXPECT_EQ(kept(must(slim(image, 80))), (Kept{{80, "elf80"}}));
  EXPECT_EQ(kept(must(slim(image, 86))), (Kept{{86, "elf86"}}));
  EXPECT_EQ(kept(must(slim(image, 89))), (Kept{{86, "elf86"}}));
  EXPECT_EQ(kept(must(slim(image, 90))), (Kept{{90, "elf90"}, {90, "elf90a"}})) << "every variant of the architecture";
  EXPECT_EQ(kept(must(slim(image, 100))), (Kept{{90, "ptx90"}})) << "PTX where no ELF fits";
  EXPECT_EQ(must(slim(image, 80)).kept, SlimImage::Kept::elf);
  EXPECT_EQ(must(slim(image, 100)).kept, SlimImage::Kept::ptx);
  EXPECT_THAT(must(slim(image, 90)).note, HasSubstr("sm_90a"));
}

TEST(Slim, ArchitectureSpecificCodeIsForItsArchitectureOnly) {
  const auto image = make_fatbin({{2, 100, kSpecific, "elf100a"},
                                  {2, 100, kFamily, "elf100f"},
                                  {1, 90, kSpecific, "ptx90a"},
                                  {1, 80, 0, "ptx80"}});
  EXPECT_EQ(kept(must(slim(image, 100))), (Kept{{100, "elf100a"}, {100, "elf100f"}}));
  EXPECT_EQ(kept(must(slim(image, 103))), (Kept{{100, "elf100f"}}));
  EXPECT_EQ(kept(must(slim(image, 120))), (Kept{{80, "ptx80"}})) << "PTX for 90a does not run elsewhere";
  EXPECT_EQ(kept(must(slim(image, 90))), (Kept{{90, "ptx90a"}}));
}

TEST(Slim, KeepsTheWholeImageWhereNothingFits) {
  const auto image = make_fatbin({{2, 90, 0, "elf90"}, {8, 80, 0, "lto"}});
  const SlimImage out = must(slim(image, 80));
  EXPECT_EQ(out.kept, SlimImage::Kept::whole);
  EXPECT_EQ(out.image, image);
  EXPECT_THAT(out.note, HasSubstr("kept whole"));
  EXPECT_EQ(must(slim(make_fatbin({}), 80)).kept, SlimImage::Kept::whole);
}

TEST(Slim, WhatFollowsTheContainerIsNotPartOfIt) {
  auto image = make_fatbin({{2, 80, 0, "elf80"}});
  const auto alone = image;
  const auto next = make_fatbin({{2, 80, 0, "other"}});
  image.insert(image.end(), next.begin(), next.end());
  EXPECT_EQ(must(fatbin_bytes(image)), alone.size());
  EXPECT_EQ(must(slim(image, 80)).image, alone);
  EXPECT_EQ(must(slim(image, 90)).image, alone) << "kept whole, but without the next one";
}

TEST(Slim, CompressedEntriesStaySoUnlessAsked) {
  const std::string code(5001, 'x');
  std::vector<Code> codes = {{2, 80, 0, code}, {2, 90, 0, code}, {2, 90, kSpecific, code + "a"}};
  const auto plain = make_fatbin(codes);
  for (Code& c : codes) c.flags |= kZstd;
  const auto compressed = make_fatbin(codes);
  const SlimImage small = must(slim(compressed, 90));
  EXPECT_LT(small.image.size(), 400u);
  EXPECT_EQ(must(fatbin_entries(small.image)).size(), 2u);
  EXPECT_EQ(must(slim(compressed, 90, true)).image, must(slim(plain, 90)).image)
      << "as if it had never been compressed";
}

TEST(Slim, Lz4IsKeptButNotDecompressed) {
  const auto image = make_fatbin({{2, 90, kLz4, "pretend"}});
  const SlimImage out = must(slim(image, 90, true));
  EXPECT_EQ(out.image, image);
  const auto payload = fatbin_payload(image, must(fatbin_entries(image))[0]);
  ASSERT_FALSE(payload.ok());
  EXPECT_EQ(payload.error().kind, ErrorKind::unsupported);
  EXPECT_THAT(payload.error().text, HasSubstr("LZ4"));
}

TEST(Fatbin, HostileHeaders) {
  const auto good = make_fatbin({{2, 90, kZstd, std::string(1000, 'y')}, {1, 90, 0, "ptx"}});
  auto refused = [&good](const std::function<void(std::vector<std::byte>&)>& change) {
    auto image = good;
    change(image);
    const auto entries = fatbin_entries(image);
    return !entries.ok() && entries.error().kind == ErrorKind::corrupt;
  };
  EXPECT_TRUE(refused([](auto& i) { put<uint64_t>(i, 8, ~uint64_t{0}); }));
  EXPECT_TRUE(refused([](auto& i) { put<uint64_t>(i, 8, i.size()); }));
  EXPECT_TRUE(refused([](auto& i) { put<uint16_t>(i, 6, 8); }));
  EXPECT_TRUE(refused([](auto& i) { put<uint16_t>(i, 6, 0xffff); }));
  EXPECT_TRUE(refused([](auto& i) { put<uint32_t>(i, 16 + 4, 0); }));
  EXPECT_TRUE(refused([](auto& i) { put<uint32_t>(i, 16 + 4, 0xffffffff); }));
  EXPECT_TRUE(refused([](auto& i) { put<uint64_t>(i, 16 + 8, ~uint64_t{0} - 63); }));
  EXPECT_TRUE(refused([](auto& i) { put<uint32_t>(i, 16 + 16, 0xffffffff); }));
  EXPECT_TRUE(refused([](auto& i) { put<uint64_t>(i, 16 + 56, uint64_t{1} << 40); }));
  EXPECT_FALSE(fatbin_bytes({}).ok());
  EXPECT_FALSE(fatbin_bytes(bytes_of("\x7f"
                                     "ELF............"))
                   .ok());
  EXPECT_FALSE(is_fatbin(bytes_of("\x50")));
  auto bomb = good;
  put<uint64_t>(bomb, 16 + 56, uint64_t{1} << 30);
  EXPECT_FALSE(fatbin_payload(bomb, must(fatbin_entries(bomb))[0]).ok()) << "claims more than its frame holds";
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(slim(std::span(good).first(size), 90).ok()) << size;
}

TEST(Fatbin, RandomBytesNeverCrash) {
  std::mt19937_64 random(11);
  const auto good =
      make_fatbin({{2, 80, 0, std::string(200, 'a')}, {2, 90, kZstd, std::string(3000, 'b')}, {1, 90, kZstd, "ptx"}});
  uint32_t fine = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> image;
    if (round % 4 == 0) {
      image.resize(random() % 300);
      for (std::byte& b : image) b = static_cast<std::byte>(random());
      if (image.size() >= 4) put<uint32_t>(image, 0, 0xba55ed50);
    } else {
      image = good;
      for (int k = 0; k < 3; ++k) image[random() % image.size()] = static_cast<std::byte>(random());
    }
    for (const bool decompress : {false, true}) {
      const auto out = slim(image, 90, decompress);
      if (!out.ok()) continue;
      ++fine;
      EXPECT_TRUE(fatbin_entries(out.value().image).ok());
    }
  }
  EXPECT_GT(fine, 1000u);
}

// ---- variables of cubins

// The smallest cubin with variables: sections by name, one symbol table.
class Cubin {
 public:
  Cubin() {
    sections = {Part{},
                {".shstrtab", SHT_STRTAB, {}},
                {".strtab", SHT_STRTAB, {}},
                {".symtab", SHT_SYMTAB, {}},
                {".nv.global.init", SHT_PROGBITS, std::vector<std::byte>(16, std::byte{7})},
                {".nv.global", SHT_NOBITS, std::vector<std::byte>(8)},
                {".nv.constant3", SHT_PROGBITS, std::vector<std::byte>(4, std::byte{9})},
                {".nv.shared.k", SHT_NOBITS, std::vector<std::byte>(64)}};
    strings.push_back('\0');
    symbols.push_back({});
    add("table", 4, 8, 8, STB_GLOBAL);
    add("counter", 5, 4, 4, STB_GLOBAL);
    add("scale", 6, 0, 4, STB_GLOBAL);
    add("hidden", 4, 0, 8, STB_LOCAL);
    add("shared", 7, 0, 64, STB_LOCAL);
    add("elsewhere", SHN_UNDEF, 0, 4, STB_GLOBAL);
    Elf64_Sym function{};
    function.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    function.st_size = 128;
    function.st_shndx = 4;
    symbols.push_back(function);
  }
  void add(const std::string& name, uint16_t section, uint64_t value, uint64_t size, unsigned char bind) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<uint32_t>(strings.size());
    symbol.st_info = static_cast<unsigned char>(ELF64_ST_INFO(bind, STT_OBJECT));
    symbol.st_shndx = section;
    symbol.st_value = value;
    symbol.st_size = size;
    symbols.push_back(symbol);
    strings += name + '\0';
  }
  std::vector<std::byte> bytes() const {
    std::string names(1, '\0');
    std::vector<std::byte> out(sizeof(Elf64_Ehdr));
    std::vector<Elf64_Shdr> headers;
    for (size_t i = 0; i < sections.size(); ++i) {
      Elf64_Shdr header{};
      header.sh_type = sections[i].type;
      if (i > 0) {
        header.sh_name = static_cast<uint32_t>(names.size());
        names += sections[i].name + '\0';
      }
      headers.push_back(header);
    }
    for (size_t i = 1; i < sections.size(); ++i) {
      std::span<const std::byte> content = sections[i].content;
      if (i == 1) content = bytes_of(names);
      if (i == 2) content = bytes_of(strings);
      if (i == 3) content = std::as_bytes(std::span(symbols));
      headers[i].sh_offset = out.size();
      headers[i].sh_size = content.size();
      headers[i].sh_addr = sections[i].address;
      headers[i].sh_link = i == 3 ? 2 : 0;
      headers[i].sh_entsize = i == 3 ? sizeof(Elf64_Sym) : 0;
      if (headers[i].sh_type != SHT_NOBITS) out.insert(out.end(), content.begin(), content.end());
    }
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = machine;
    header.e_shoff = out.size();
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(headers.size());
    header.e_shstrndx = 1;
    std::memcpy(out.data(), &header, sizeof header);
    const auto table = std::as_bytes(std::span(headers));
    out.insert(out.end(), table.begin(), table.end());
    return out;
  }

  struct Part {
    std::string name;
    uint32_t type = SHT_NULL;
    std::vector<std::byte> content;
    uint64_t address = 0;
  };
  uint16_t machine = 190;
  std::vector<Part> sections;
  std::string strings;
  std::vector<Elf64_Sym> symbols;
};

TEST(ElfGlobals, FindsVariablesOfEveryKind) {
  const auto cubin = Cubin().bytes();
  const auto globals = must(elf_globals(cubin));
  ASSERT_EQ(globals.size(), 4u);
  std::map<std::string, ElfGlobal> by_name;
  for (const ElfGlobal& global : globals) by_name[global.symbol] = global;
  EXPECT_EQ(by_name["table"].bytes, 8u);
  EXPECT_TRUE(by_name["table"].initialized);
  ASSERT_EQ(by_name["table"].initial.size(), 8u);
  EXPECT_EQ(by_name["table"].initial[0], std::byte{7});
  EXPECT_FALSE(by_name["table"].constant);
  EXPECT_FALSE(by_name["counter"].initialized);
  EXPECT_TRUE(by_name["counter"].initial.empty());
  EXPECT_TRUE(by_name["scale"].constant);
  EXPECT_EQ(by_name["scale"].initial[3], std::byte{9});
  EXPECT_TRUE(by_name["hidden"].local);
}

TEST(ElfGlobals, StrippedVariablesAreAnError) {
  Cubin stripped;
  stripped.sections[3].type = SHT_PROGBITS;
  const auto globals = elf_globals(stripped.bytes());
  ASSERT_FALSE(globals.ok());
  EXPECT_NE(globals.error().text.find("it has variables (section .nv.global.init) but no symbol table"),
            std::string::npos);
  for (size_t i = 4; i < 7; ++i) stripped.sections[i].content.clear();
  EXPECT_TRUE(must(elf_globals(stripped.bytes())).empty());
}

// Images of the simulated driver are linked host objects: their sections have addresses, and symbols with them.
TEST(ElfGlobals, SymbolsMayHoldAddresses) {
  constexpr uint64_t kAddress = 0x4000;
  auto linked = [](uint64_t value) {
    Cubin cubin;
    cubin.machine = EM_X86_64;
    cubin.sections[4].address = kAddress;
    cubin.symbols.resize(1);
    cubin.add("table", 4, value, 8, STB_GLOBAL);
    return cubin.bytes();
  };
  const auto image = linked(kAddress + 8);
  const auto globals = must(elf_globals(image));
  ASSERT_EQ(globals.size(), 1u);
  ASSERT_EQ(globals[0].initial.size(), 8u);
  EXPECT_EQ(globals[0].initial[0], std::byte{7});
  EXPECT_FALSE(elf_globals(linked(kAddress - 8)).ok());
  EXPECT_FALSE(elf_globals(linked(kAddress + 9)).ok());
  EXPECT_FALSE(elf_globals(linked(8)).ok());
}

TEST(ElfGlobals, DamageIsAnError) {
  auto refused = [](const std::function<void(Cubin&)>& change) {
    Cubin cubin;
    change(cubin);
    return !elf_globals(cubin.bytes()).ok();
  };
  EXPECT_TRUE(refused([](Cubin& c) { c.symbols[1].st_size = 9; }));
  EXPECT_TRUE(refused([](Cubin& c) { c.symbols[1].st_value = ~uint64_t{0}; }));
  EXPECT_TRUE(refused([](Cubin& c) { c.symbols[1].st_size = ~uint64_t{0}; }));
  EXPECT_TRUE(refused([](Cubin& c) { c.symbols[1].st_shndx = 200; }));
  EXPECT_TRUE(refused([](Cubin& c) { c.symbols[1].st_name = 1000; }));
  EXPECT_TRUE(refused([](Cubin& c) { c.symbols[1].st_name = 0; }));
  EXPECT_TRUE(refused([](Cubin& c) {
    c.strings.back() = 'x';
    c.symbols[1].st_name = static_cast<uint32_t>(c.strings.size() - 2);
  }));
  const auto good = Cubin().bytes();
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(elf_globals(std::span(good).first(size)).ok()) << size;
  EXPECT_EQ(elf_globals(bytes_of("no elf")).error().kind, ErrorKind::invalid);
}

TEST(ElfGlobals, RandomBytesNeverCrash) {
  const auto good = Cubin().bytes();
  std::mt19937_64 random(5);
  uint64_t found = 0;
  for (int round = 0; round < 50000; ++round) {
    auto bytes = good;
    for (int k = 0; k < 4; ++k)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 2 == 0 ? random() : 0xff);
    const auto globals = elf_globals(bytes);
    if (!globals.ok()) continue;
    for (const ElfGlobal& global : globals.value())
      for (const std::byte b : global.initial) found += std::to_integer<uint64_t>(b);
  }
  EXPECT_GT(found, 0u);
}

// What nvcc of the pinned CUDA makes of globals.cu for sm_80, sm_90, sm_90a and compute_90, all compressed.
TEST(RealFatbin, SlimsAndShowsItsVariables) {
  const char* path = std::getenv("GLOBALS_FATBIN");
  if (path == nullptr) GTEST_SKIP() << "GLOBALS_FATBIN names no file; Bazel sets it";
  const auto image = read_file(path);
  ASSERT_TRUE(is_fatbin(image));
  EXPECT_EQ(must(fatbin_bytes(image)), image.size());
  std::vector<std::string> seen;
  for (const FatbinEntry& entry : must(fatbin_entries(image))) {
    EXPECT_TRUE(entry.zstd()) << "the target asks for compression";
    seen.push_back(std::to_string(entry.kind) + ":" + std::to_string(entry.arch) + (entry.runs_on(90) ? "" : "-"));
  }
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre("2:80-", "2:90", "2:90", "1:90"));
  const SlimImage small = must(slim(image, 90, true));
  EXPECT_EQ(small.entries, 2u);
  for (const FatbinEntry& entry : must(fatbin_entries(small.image))) {
    EXPECT_FALSE(entry.compressed());
    const auto cubin = must(fatbin_payload(small.image, entry));
    std::map<std::string, ElfGlobal> globals;
    for (ElfGlobal& global : must(elf_globals(cubin))) globals[global.symbol] = global;
    ASSERT_TRUE(globals.contains("counter") && globals.contains("table") && globals.contains("scale"));
    EXPECT_EQ(globals.size(), 4u);
    EXPECT_FALSE(globals["counter"].initialized);
    EXPECT_EQ(globals["table"].bytes, 64u);
    EXPECT_EQ(globals["table"].initial[8], std::byte{2});
    EXPECT_TRUE(globals["scale"].constant);
    float scale;
    std::memcpy(&scale, globals["scale"].initial.data(), sizeof scale);
    EXPECT_EQ(scale, 1.5f);
  }
}

}  // namespace
}  // namespace foundry::archive::test
