// Loads the code of a simulated image: checks the ELF, gives it a private copy, and reads its kernel records.
#include "csrc/sim/image/image.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "csrc/sim/image/container.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

namespace foundry::sim {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kHostMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kHostMachine = EM_AARCH64;
#else
#error "simulated images: unknown host architecture"
#endif

// What image.cc needs to know of an ELF file, all of it within bounds.
struct ElfFacts {
  std::uint64_t records_address = 0, record_count = 0;  // of the record section, relative to the load address
  std::uint64_t low = 0, high = 0;                      // the addresses its segments cover
};

template <class T>
std::optional<T> read_at(const std::vector<std::byte>& file, std::uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

// Null for anything that is not a simulated image, such as a real cubin.
std::optional<ElfFacts> examine(const std::vector<std::byte>& file) {
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_machine != kHostMachine || header->e_type != ET_DYN ||
      header->e_phentsize != sizeof(Elf64_Phdr) || header->e_shentsize != sizeof(Elf64_Shdr)) {
    return std::nullopt;
  }
  ElfFacts facts;
  facts.low = UINT64_MAX;
  for (std::size_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = read_at<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment || segment->p_offset > file.size() || segment->p_filesz > file.size() - segment->p_offset) {
      return std::nullopt;
    }
    if (segment->p_type != PT_LOAD) continue;
    if (segment->p_memsz > (std::uint64_t{1} << 32) || segment->p_vaddr > (std::uint64_t{1} << 32)) return std::nullopt;
    facts.low = std::min(facts.low, segment->p_vaddr);
    facts.high = std::max(facts.high, segment->p_vaddr + segment->p_memsz);
  }
  const auto names = read_at<Elf64_Shdr>(file, header->e_shoff + header->e_shstrndx * sizeof(Elf64_Shdr));
  if (!names || names->sh_offset > file.size() || names->sh_size > file.size() - names->sh_offset) return std::nullopt;
  for (std::size_t i = 0; i < header->e_shnum; ++i) {
    const auto section = read_at<Elf64_Shdr>(file, header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) return std::nullopt;
    if (section->sh_name >= names->sh_size || names->sh_size - section->sh_name < sizeof kRecordSection) continue;
    if (std::memcmp(file.data() + names->sh_offset + section->sh_name, kRecordSection, sizeof kRecordSection) != 0) {
      continue;
    }
    if ((section->sh_flags & SHF_ALLOC) == 0 || section->sh_size % sizeof(SimRecord) != 0 ||
        section->sh_addr % alignof(SimRecord) != 0 || section->sh_addr < facts.low || section->sh_addr > facts.high ||
        section->sh_size > facts.high - section->sh_addr) {
      return std::nullopt;
    }
    facts.records_address = section->sh_addr;
    facts.record_count = section->sh_size / sizeof(SimRecord);
  }
  if (facts.record_count == 0) return std::nullopt;
  return facts;
}

// The dynamic loader takes a path that it has seen for the object it saw there, and descriptor numbers are reused:
// every load needs a spelling of its own. "/." and "//" in front of the last name spell the load's number.
std::string unique_path(int file) {
  static std::atomic<std::uint64_t> loads{0};
  std::string path = "/proc/self/fd";
  for (std::uint64_t n = loads.fetch_add(1) + 1; n != 0; n >>= 1) path += (n & 1) != 0 ? "/." : "/";
  return path + "/" + std::to_string(file);
}

// Opens a private copy of the file; null with `why` set on failure.
void* open_copy(const std::vector<std::byte>& bytes, std::string* why) {
  int file = memfd_create("foundry-sim-image", MFD_CLOEXEC | MFD_EXEC);
  if (file < 0 && errno == EINVAL) file = memfd_create("foundry-sim-image", MFD_CLOEXEC);  // before Linux 6.3
  if (file < 0) {
    *why = std::string("memfd_create failed: ") + std::strerror(errno);
    return nullptr;
  }
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  void* handle = nullptr;
  if (done < bytes.size()) {
    *why = std::string("writing the private copy failed: ") + std::strerror(errno);
  } else {
    handle = dlopen(unique_path(file).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) *why = dlerror();
  }
  close(file);
  return handle;
}

// The loaded object, for checks of the pointers in its records.
struct Loaded {
  std::uintptr_t low, high;

  bool holds(const void* address, std::uint64_t bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= low && at <= high && bytes <= high - at;
  }
  bool holds_name(const char* name) const {
    return holds(name, 1) &&
           std::memchr(name, 0, std::min<std::uintptr_t>(high - reinterpret_cast<std::uintptr_t>(name), 4096)) !=
               nullptr;
  }
};

constexpr std::uint64_t kMostParams = 4096;

bool usable(const SimRecord& record, const Loaded& loaded) {
  if (record.magic != kRecordMagic || !loaded.holds_name(record.name) || record.name[0] == '\0') return false;
  if (record.kind == RecordKind::kKernel) {
    return loaded.holds(record.address, 1) && record.param_count <= kMostParams &&
           loaded.holds(record.params, record.param_count * sizeof(SimParam));
  }
  return (record.kind == RecordKind::kGlobal || record.kind == RecordKind::kConstant) && record.bytes != 0 &&
         loaded.holds(record.address, record.bytes);
}

ImageKernel kernel_of(const SimRecord& record) {
  ImageKernel kernel;
  kernel.name = record.name;
  kernel.entry = reinterpret_cast<SimEntry>(record.address);
  for (std::uint64_t i = 0; i < record.param_count; ++i) {
    kernel.param_offsets.push_back(record.params[i].offset);
    kernel.param_sizes.push_back(record.params[i].size);
  }
  kernel.static_shared_bytes = record.traits.static_shared_bytes;
  kernel.max_threads_per_block = record.traits.max_threads_per_block;
  kernel.registers = record.traits.registers;
  kernel.local_bytes = record.traits.local_bytes;
  kernel.required_cluster = record.traits.required_cluster;
  return kernel;
}

}  // namespace

std::unique_ptr<Image> Image::load(const void* data, int cc_major, int cc_minor, CUresult* code, std::string* text,
                                   std::size_t available) {
  const auto fail = [&](CUresult result, std::string why) -> std::unique_ptr<Image> {
    *code = result;
    *text = std::move(why);
    return nullptr;
  };
  auto selected = select_payload(data, available, cc_major, cc_minor);
  if (const auto* failure = std::get_if<ImageFailure>(&selected)) return fail(failure->code, failure->text);
  const auto& payload = std::get<ImagePayload>(selected);
  const auto facts = examine(payload.bytes);
  if (!facts) {
    return fail(CUDA_ERROR_NO_BINARY_FOR_GPU,
                "The code image holds no simulated kernels (a real cubin or PTX cannot run on the simulated driver).");
  }

  std::string why;
  std::unique_ptr<Image> image(new Image);
  image->handle_ = open_copy(payload.bytes, &why);
  if (image->handle_ == nullptr) {
    return fail(CUDA_ERROR_OPERATING_SYSTEM, "The host could not load the code image: " + why + ".");
  }
  link_map* map = nullptr;
  if (dlinfo(image->handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) {
    return fail(CUDA_ERROR_OPERATING_SYSTEM, "The host does not say where it loaded the code image.");
  }
  const Loaded loaded{map->l_addr + facts->low, map->l_addr + facts->high};
  const auto* records = reinterpret_cast<const SimRecord*>(map->l_addr + facts->records_address);
  image->from_ptx_ = payload.from_ptx;
  image->arch_ = static_cast<int>(records[0].arch);
  for (std::uint64_t i = 0; i < facts->record_count; ++i) {
    const SimRecord& record = records[i];
    if (!usable(record, loaded) || static_cast<int>(record.arch) != image->arch_) {
      return fail(CUDA_ERROR_INVALID_IMAGE,
                  "The code image is damaged: kernel record " + std::to_string(i) + " is not valid.");
    }
    if (record.kind == RecordKind::kKernel) {
      image->kernels_.push_back(kernel_of(record));
    } else {
      image->globals_.push_back(
          {record.name, record.address, static_cast<std::size_t>(record.bytes), record.kind == RecordKind::kConstant});
    }
  }
  if (payload.arch != 0 && payload.arch != image->arch_) {
    return fail(CUDA_ERROR_INVALID_IMAGE, "The code image is damaged: its entry for sm_" +
                                              std::to_string(payload.arch) + " holds code for sm_" +
                                              std::to_string(image->arch_) + ".");
  }
  if (!runs_on(image->arch_, image->from_ptx_, cc_major, cc_minor)) {
    return fail(CUDA_ERROR_NO_BINARY_FOR_GPU, "The code image is for sm_" + std::to_string(image->arch_) +
                                                  ", the device is sm_" + std::to_string(10 * cc_major + cc_minor) +
                                                  ".");
  }
  *code = CUDA_SUCCESS;
  text->clear();
  return image;
}

Image::~Image() {
  if (handle_ != nullptr) dlclose(handle_);
}

}  // namespace foundry::sim
