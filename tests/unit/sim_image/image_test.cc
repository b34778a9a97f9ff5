// Loading real images: records, private copies, architectures, and ELF files with damaged tables.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/sim_image/support.h"

// A variable with the name of an image's global, exported by this program: an image must not bind to it.
extern "C" __attribute__((visibility("default"))) int step_counter;
int step_counter = 1000;

namespace foundry::sim {
namespace {

using testing::ElementsAre;

class ImageTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(decode_.empty());
    ASSERT_FALSE(assorted_.empty());
    ASSERT_FALSE(bare_.empty());
  }

  static int probe_arch(const Image& image) {
    int out[12] = {};
    run(image, "probe", SimLaunch{}, static_cast<int*>(out));
    return out[0];
  }

  const Bytes decode_ = file_of("DECODE"), assorted_ = file_of("ASSORTED"), bare_ = file_of("ASSORTED_SM80");
};

TEST_F(ImageTest, LoadsEveryContainer) {
  const Wrapper v1{.version = 1, .data = assorted_.data()};
  const void* objects[] = {assorted_.data(), nullptr};
  const Wrapper v2{.version = 2, .data = assorted_.data(), .objects = objects};
  const Wrapper v2_elf{.version = 2, .data = bare_.data(), .objects = objects};
  for (const void* data :
       {static_cast<const void*>(assorted_.data()), static_cast<const void*>(bare_.data()),
        static_cast<const void*>(&v1), static_cast<const void*>(&v2), static_cast<const void*>(&v2_elf)}) {
    const auto attempt = load(data, 80);
    ASSERT_NE(attempt.image, nullptr) << attempt.text;
    EXPECT_EQ(attempt.code, CUDA_SUCCESS);
    EXPECT_EQ(attempt.image->kernels().size(), 7u);
    EXPECT_EQ(probe_arch(*attempt.image), 80);
  }
}

TEST_F(ImageTest, RunsTheCodeOfTheDevicesArchitecture) {
  const auto a100 = load(decode_, 80), h100 = load(decode_, 90), ada = load(decode_, 89);
  ASSERT_TRUE(a100.image && h100.image && ada.image) << a100.text << h100.text << ada.text;
  EXPECT_EQ(a100.image->arch(), 80);
  EXPECT_EQ(ada.image->arch(), 80);
  EXPECT_EQ(h100.image->arch(), 90);
  EXPECT_FALSE(h100.image->from_ptx());
  const char* gemm = "_ZN4mini4gemmILi256EEEvPfPKfS3_ii";
  EXPECT_NE(kernel_named(*a100.image, gemm)->registers, kernel_named(*h100.image, gemm)->registers);

  const auto compiled = load(assorted_, 80), native = load(assorted_, 90), later = load(assorted_, 120);
  ASSERT_TRUE(compiled.image && native.image && later.image) << later.text;
  EXPECT_TRUE(compiled.image->from_ptx());
  EXPECT_FALSE(native.image->from_ptx());
  EXPECT_TRUE(later.image->from_ptx()) << "PTX runs on every later device";
  EXPECT_EQ(probe_arch(*native.image), 90);
  EXPECT_EQ(probe_arch(*later.image), 80);
}

TEST_F(ImageTest, BareElfForAnotherArchitectureIsRefused) {
  EXPECT_EQ(load(bare_, 90).code, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load(bare_, 75).code, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_NE(load(bare_, 86).image, nullptr);
}

TEST_F(ImageTest, EntryThatLiesAboutItsArchitectureIsDamaged) {
  EXPECT_EQ(load(make_fatbin({{kEntryElf, 90, bare_}}), 90).code, CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(ImageTest, ParametersAreLaidOutAsACompilerWould) {
  const auto attempt = load(assorted_, 90);
  ASSERT_NE(attempt.image, nullptr) << attempt.text;
  const auto* grouped = kernel_named(*attempt.image, "_ZN4mini12grouped_gemvEPfPKPKfS2_iii");
  ASSERT_NE(grouped, nullptr);
  EXPECT_THAT(grouped->param_offsets, ElementsAre(0, 8, 16, 24, 28, 32));
  EXPECT_THAT(grouped->param_sizes, ElementsAre(8, 8, 8, 4, 4, 4));
  const auto* words = kernel_named(*attempt.image, "fill_words");
  ASSERT_NE(words, nullptr);
  EXPECT_THAT(words->param_offsets, ElementsAre(0, 8, 16)) << "the 8-byte value after a 4-byte one is aligned";
  const auto* scale = kernel_named(*attempt.image, "_ZN4mini10scale_biasENS_9ScaleArgsE");
  ASSERT_NE(scale, nullptr);
  EXPECT_THAT(scale->param_sizes, ElementsAre(40)) << "with its padding";
}

TEST_F(ImageTest, NamesAreThoseOfTheSignatures) {
  const auto attempt = load(decode_, 80);
  ASSERT_NE(attempt.image, nullptr) << attempt.text;
  for (const auto& kernel : attempt.image->kernels()) {
    int status = -1;
    std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(kernel.name.c_str(), nullptr, nullptr, &status),
                                                &std::free);
    EXPECT_EQ(status, 0) << kernel.name;
    EXPECT_THAT(std::string(name ? name.get() : ""), testing::HasSubstr("mini::"));
    EXPECT_GT(kernel.max_threads_per_block, 0u);
    EXPECT_LE(kernel.registers, 255u);
  }
}

TEST_F(ImageTest, EachLoadHasItsOwnGlobals) {
  const auto first = load(assorted_, 90), second = load(assorted_, 90);
  ASSERT_TRUE(first.image && second.image) << first.text;
  int out = 0;
  for (int i = 1; i <= 3; ++i) {
    run(*first.image, "count_step", SimLaunch{}, &out);
    EXPECT_EQ(out, i) << "neither the host's step_counter nor an earlier load's";
  }
  run(*second.image, "count_step", SimLaunch{}, &out);
  EXPECT_EQ(out, 1);
  EXPECT_EQ(step_counter, 1000);

  const auto *counter = global_named(*first.image, "step_counter"), *scale = global_named(*first.image, "logit_scale");
  ASSERT_TRUE(counter && scale);
  EXPECT_EQ(counter->bytes, sizeof(int));
  EXPECT_EQ(*static_cast<int*>(counter->address), 3);
  EXPECT_FALSE(counter->constant);
  EXPECT_TRUE(scale->constant);
  EXPECT_EQ(*static_cast<float*>(scale->address), 1.0f);
  EXPECT_NE(counter->address, global_named(*second.image, "step_counter")->address);
}

// File descriptors and their names are reused; loads must not be.
TEST_F(ImageTest, ReloadingStartsFromTheInitialValue) {
  for (int i = 0; i < 20; ++i) {
    const auto one = load(assorted_, 90);
    const auto other = load(decode_, 90);
    ASSERT_TRUE(one.image && other.image) << one.text << other.text;
    EXPECT_NE(kernel_named(*other.image, "_ZN4mini3addEPfPKfi"), nullptr);
    EXPECT_EQ(kernel_named(*other.image, "probe"), nullptr);
    int out = 0;
    run(*one.image, "count_step", SimLaunch{}, &out);
    EXPECT_EQ(out, 1);
  }
}

TEST_F(ImageTest, UnloadingLeavesNothingMapped) {
  void* entry = nullptr;
  {
    const auto attempt = load(assorted_, 90);
    ASSERT_NE(attempt.image, nullptr);
    entry = reinterpret_cast<void*>(kernel_named(*attempt.image, "probe")->entry);
    Dl_info info;
    EXPECT_NE(dladdr(entry, &info), 0);
  }
  Dl_info info;
  EXPECT_EQ(dladdr(entry, &info), 0);
}

TEST_F(ImageTest, TheClientsBytesAreNotNeededAfterwards) {
  Bytes bytes = assorted_;
  const auto attempt = load(bytes, 90);
  ASSERT_NE(attempt.image, nullptr);
  std::fill(bytes.begin(), bytes.end(), 0);
  EXPECT_EQ(probe_arch(*attempt.image), 90);
}

TEST_F(ImageTest, GlobalsStandInTheElfSymbolTableAsInACubin) {
  const auto header = reinterpret_cast<const Elf64_Ehdr*>(bare_.data());
  const auto sections = reinterpret_cast<const Elf64_Shdr*>(bare_.data() + header->e_shoff);
  const char* names = bare_.data() + sections[header->e_shstrndx].sh_offset;
  std::vector<std::string> found;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const char* strings = bare_.data() + sections[sections[i].sh_link].sh_offset;
    const auto symbols = reinterpret_cast<const Elf64_Sym*>(bare_.data() + sections[i].sh_offset);
    for (std::size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) != STT_OBJECT || symbols[s].st_shndx >= header->e_shnum) continue;
      found.push_back(std::string(strings + symbols[s].st_name) + " " +
                      (names + sections[symbols[s].st_shndx].sh_name) + " " + std::to_string(symbols[s].st_size));
    }
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre("step_counter .nv.global.init 4", "logit_scale .nv.constant3 4"));
}

TEST_F(ImageTest, ImagesNeedTheCLibraryOnly) {
  for (const Bytes* image : {&decode_, &assorted_}) {
    const std::string bytes(image->begin(), image->end());
    EXPECT_EQ(bytes.find("libstdc++"), std::string::npos);
    EXPECT_EQ(bytes.find("libgcc"), std::string::npos);
  }
}

// Every byte of the ELF header and of the section and program headers is set to several values in turn; whatever the
// outcome, it is an image or an error.
TEST_F(ImageTest, DamagedElfTablesAreErrors) {
  const auto header = *reinterpret_cast<const Elf64_Ehdr*>(bare_.data());
  std::vector<std::size_t> places(sizeof header);
  std::iota(places.begin(), places.end(), 0);
  for (std::size_t i = 0; i < header.e_shnum * sizeof(Elf64_Shdr); ++i) places.push_back(header.e_shoff + i);
  int refused = 0;
  for (const std::size_t at : places) {
    for (const unsigned char value : {0x00, 0x7f, 0xff}) {
      Bytes bytes = bare_;
      bytes[at] = static_cast<char>(value);
      const auto selected = select_payload(bytes.data(), bytes.size(), 8, 0);
      refused += std::holds_alternative<ImageFailure>(selected) ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST_F(ImageTest, DamagedRecordsAreErrors) {
  const auto header = reinterpret_cast<const Elf64_Ehdr*>(bare_.data());
  const auto sections = reinterpret_cast<const Elf64_Shdr*>(bare_.data() + header->e_shoff);
  const char* names = bare_.data() + sections[header->e_shstrndx].sh_offset;
  int tried = 0;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (std::strcmp(names + sections[i].sh_name, kRecordSection) != 0) continue;
    Bytes bytes = bare_;
    put<std::uint32_t>(bytes, sections[i].sh_offset, 0);  // magic
    EXPECT_EQ(load(bytes, 80).code, CUDA_ERROR_INVALID_IMAGE);
    bytes = bare_;
    put<std::uint32_t>(bytes, sections[i].sh_offset + 4, 9);  // kind
    EXPECT_EQ(load(bytes, 80).code, CUDA_ERROR_INVALID_IMAGE);
    bytes = bare_;
    put<std::uint64_t>(bytes, sections[i].sh_offset + offsetof(SimRecord, param_count), 1 << 20);
    EXPECT_EQ(load(bytes, 80).code, CUDA_ERROR_INVALID_IMAGE);
    bytes = bare_;
    put<std::uint64_t>(bytes, header->e_shoff + i * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_size),
                       sections[i].sh_size + 1);
    EXPECT_EQ(load(bytes, 80).code, CUDA_ERROR_NO_BINARY_FOR_GPU);
    bytes = bare_;
    put<std::uint64_t>(bytes, header->e_shoff + i * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_addr),
                       std::uint64_t{1} << 40);
    EXPECT_EQ(load(bytes, 80).code, CUDA_ERROR_NO_BINARY_FOR_GPU);
    tried += 1;
  }
  EXPECT_EQ(tried, 1);
}

TEST_F(ImageTest, TruncatedImagesAreErrors) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{15}, std::size_t{63}, std::size_t{100},
                                 bare_.size() / 2, bare_.size() - 64}) {
    const Bytes elf(bare_.begin(), bare_.begin() + static_cast<std::ptrdiff_t>(size));
    const Bytes fatbin(assorted_.begin(), assorted_.begin() + static_cast<std::ptrdiff_t>(size));
    if (size != 0) {  // 0 means that the size is not known
      EXPECT_EQ(load(elf, 80).image, nullptr) << size;
      EXPECT_EQ(load(fatbin, 90).image, nullptr) << size;
    }
    EXPECT_EQ(load(make_fatbin({{kEntryElf, 80, elf}}), 80).image, nullptr) << size;
  }
}

}  // namespace
}  // namespace foundry::sim
