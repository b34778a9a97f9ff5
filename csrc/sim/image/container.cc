// Containers of code images: finds the entry for a device and copies it out, checking every offset.
#include "csrc/sim/image/container.h"

#include <elf.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace foundry::sim {
namespace {

constexpr std::size_t kLargestImage = std::size_t{1} << 28;

// Copies client memory through the kernel, which answers EFAULT where a plain read would fault: a client hands over a
// bare pointer, and the size that its header claims may be wrong.
class GuardedCopy {
 public:
  GuardedCopy(const void* from, std::size_t available)
      : from_(static_cast<const char*>(from)), limit_(available == 0 ? kLargestImage : available) {
    file_ = memfd_create("foundry-sim-container", MFD_CLOEXEC);
  }
  ~GuardedCopy() {
    if (file_ >= 0) close(file_);
  }
  GuardedCopy(const GuardedCopy&) = delete;
  GuardedCopy& operator=(const GuardedCopy&) = delete;

  // Makes the first `size` bytes available in bytes(); false if they cannot be read.
  bool extend(std::size_t size) {
    if (size <= bytes_.size()) return true;
    if (file_ < 0 || size > limit_ || size > kLargestImage) return false;
    std::size_t done = bytes_.size();
    while (done < size) {
      const ssize_t n = pwrite(file_, from_ + done, size - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    done = bytes_.size();
    bytes_.resize(size);
    while (done < size) {
      const ssize_t n = pread(file_, bytes_.data() + done, size - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  }

  std::vector<std::byte>& bytes() { return bytes_; }

  template <class T>
  T at(std::size_t offset) const {  // the caller has checked the range
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

 private:
  const char* from_;
  std::size_t limit_;
  int file_ = -1;
  std::vector<std::byte> bytes_;
};

ImageFailure damaged(const std::string& what) {
  return {CUDA_ERROR_INVALID_IMAGE, "The code image is damaged: " + what + "."};
}

std::string arch_name(int arch) { return "sm_" + std::to_string(arch); }

struct Entry {
  std::uint16_t kind;
  std::size_t payload_at, payload_bytes;
  int arch;
  std::uint64_t flags;
};

std::variant<ImagePayload, ImageFailure> from_fatbin(GuardedCopy& copy, int cc_major, int cc_minor) {
  const std::size_t header = copy.at<std::uint16_t>(6);
  const std::uint64_t body = copy.at<std::uint64_t>(8);
  if (header < kFatbinHeaderBytes) return damaged("its header size is " + std::to_string(header));
  if (body > kLargestImage || !copy.extend(header + body)) {
    return damaged("its header claims " + std::to_string(body) + " bytes, which cannot be read");
  }
  const std::size_t end = header + body;

  std::vector<Entry> entries;
  for (std::size_t at = header; at < end;) {
    if (end - at < kEntryHeaderBytes) return damaged("the entry at offset " + std::to_string(at) + " is cut off");
    const std::size_t header_bytes = copy.at<std::uint32_t>(at + 4);
    const std::uint64_t payload_bytes = copy.at<std::uint64_t>(at + 8);
    if (header_bytes < kEntryHeaderBytes || header_bytes > end - at || payload_bytes > end - at - header_bytes) {
      return damaged("the entry at offset " + std::to_string(at) + " reaches beyond the container");
    }
    entries.push_back({copy.at<std::uint16_t>(at), at + header_bytes, static_cast<std::size_t>(payload_bytes),
                       static_cast<int>(copy.at<std::uint32_t>(at + 28) & 0xffff), copy.at<std::uint64_t>(at + 40)});
    at += header_bytes + payload_bytes;
  }

  const Entry* best = nullptr;
  for (const std::uint16_t kind : {kEntryElf, kEntryPtx}) {
    for (const Entry& entry : entries) {
      if (entry.kind == kind && runs_on(entry.arch, kind == kEntryPtx, cc_major, cc_minor) &&
          (best == nullptr || entry.arch > best->arch)) {
        best = &entry;
      }
    }
    if (best != nullptr) break;
  }
  if (best == nullptr) {
    std::string have;
    for (const Entry& entry : entries) {
      if (!have.empty()) have += ", ";
      have += (entry.kind == kEntryPtx ? "PTX for " : "") + arch_name(entry.arch);
    }
    return ImageFailure{CUDA_ERROR_NO_BINARY_FOR_GPU, "The code image has no code for " +
                                                          arch_name(10 * cc_major + cc_minor) + "; it has " +
                                                          (have.empty() ? "none at all" : have) + "."};
  }
  if ((best->flags & kEntryCompressed) != 0) {
    return ImageFailure{CUDA_ERROR_NOT_SUPPORTED, "The code image's entry for " + arch_name(best->arch) +
                                                      " is compressed; the simulated driver reads uncompressed ones."};
  }
  ImagePayload payload;
  const auto from = copy.bytes().begin() + static_cast<std::ptrdiff_t>(best->payload_at);
  payload.bytes.assign(from, from + static_cast<std::ptrdiff_t>(best->payload_bytes));
  payload.arch = best->arch;
  payload.from_ptx = best->kind == kEntryPtx;
  return payload;
}

// A bare ELF does not say how long it is; its tables do.
std::variant<ImagePayload, ImageFailure> from_elf(GuardedCopy& copy) {
  if (!copy.extend(sizeof(Elf64_Ehdr))) return damaged("its ELF header cannot be read");
  const auto header = copy.at<Elf64_Ehdr>(0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return damaged("it is not a 64-bit ELF file");
  std::uint64_t end = sizeof header;
  auto cover = [&end](std::uint64_t offset, std::uint64_t size) {
    if (offset > kLargestImage || size > kLargestImage) return false;
    end = std::max(end, offset + size);
    return true;
  };
  if (!cover(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr)) ||
      !cover(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)) || !copy.extend(end)) {
    return damaged("its ELF tables lie outside readable memory");
  }
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const auto section = copy.at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS && !cover(section.sh_offset, section.sh_size)) {
      return damaged("ELF section " + std::to_string(i) + " is out of bounds");
    }
  }
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = copy.at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!cover(segment.p_offset, segment.p_filesz)) {
      return damaged("ELF segment " + std::to_string(i) + " is out of bounds");
    }
  }
  if (!copy.extend(end)) return damaged("its ELF sections lie outside readable memory");
  ImagePayload payload;
  payload.bytes = std::move(copy.bytes());
  payload.bytes.resize(end);
  return payload;
}

bool looks_like_ptx(const GuardedCopy& copy) {
  const auto first = copy.at<std::uint32_t>(0);
  return std::memcmp(&first, "//", 2) == 0 || std::memcmp(&first, ".ver", 4) == 0;
}

}  // namespace

bool runs_on(int arch, bool ptx, int cc_major, int cc_minor) {
  const int device = 10 * cc_major + cc_minor;
  return arch <= device && (ptx || arch / 10 == cc_major);
}

std::variant<ImagePayload, ImageFailure> select_payload(const void* data, std::size_t available, int cc_major,
                                                        int cc_minor) {
  if (data == nullptr) return ImageFailure{CUDA_ERROR_INVALID_VALUE, "The code image is a null pointer."};
  std::optional<GuardedCopy> copy(std::in_place, data, available);
  if (!copy->extend(4)) return damaged("its first bytes cannot be read");

  if (copy->at<std::uint32_t>(0) == kWrapperMagic) {
    if (!copy->extend(16)) return damaged("its wrapper is cut off");
    const auto version = copy->at<std::uint32_t>(4);
    if (version != 1 && version != 2) return damaged("its wrapper has version " + std::to_string(version));
    // Version 2's third field lists the objects it was linked from; `data` is already the linked image in both.
    const auto inner = copy->at<std::uint64_t>(8);
    if (inner == 0) return damaged("its wrapper points nowhere");
    copy.emplace(reinterpret_cast<const void*>(inner), 0);
    if (!copy->extend(4)) return damaged("its wrapper points to memory that cannot be read");
  }

  const auto magic = copy->at<std::uint32_t>(0);
  if (magic == kFatbinMagic) {
    if (!copy->extend(kFatbinHeaderBytes)) return damaged("its fatbin header is cut off");
    return from_fatbin(*copy, cc_major, cc_minor);
  }
  if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0) return from_elf(*copy);
  if (looks_like_ptx(*copy)) {
    return ImageFailure{CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
                        "The code image is PTX text, and the simulated driver has no "
                        "compiler for it; give it an image made by make_image.py."};
  }
  return ImageFailure{CUDA_ERROR_INVALID_IMAGE,
                      "The code image is neither a fatbin, nor a fatbin wrapper, nor an ELF."};
}

}  // namespace foundry::sim
