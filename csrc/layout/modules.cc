#include "csrc/layout/modules.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace foundry::layout {
namespace {

constexpr size_t kNameBytes = 256;
constexpr size_t kBuildIdBytes = 32;

// One executable segment, copied out of the loader's list.
struct Seen {
  uint64_t begin, end, bias;
  bool main_program;
  char name[kNameBytes];
  uint8_t build_id[kBuildIdBytes];
  size_t build_id_bytes;
};

// The callback runs under a lock of the dynamic loader: it allocates nothing and waits for nobody.
struct Scan {
  Seen* seen = nullptr;
  size_t capacity = 0, count = 0;
  bool first = true;
  uint64_t loads = 0, unloads = 0;
};

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// The GNU build-id among the notes at [at, at + bytes).
void read_build_id(const char* at, size_t bytes, size_t alignment, Seen& out) {
  const size_t step = alignment == 8 ? 8 : 4;
  const auto padded = [step](size_t n) { return (n + step - 1) / step * step; };
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const size_t name = padded(note.n_namesz), total = sizeof note + name + padded(note.n_descsz);
    if (total > bytes || name > bytes || note.n_descsz > bytes) return;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(at + sizeof note, "GNU", 4) == 0) {
      out.build_id_bytes = std::min<size_t>(note.n_descsz, kBuildIdBytes);
      std::memcpy(out.build_id, at + sizeof note + name, out.build_id_bytes);
      return;
    }
    at += total;
    bytes -= total;
  }
}

int changed(dl_phdr_info* info, size_t, void* argument) {
  auto& scan = *static_cast<Scan*>(argument);
  scan.loads = info->dlpi_adds;
  scan.unloads = info->dlpi_subs;
  return 1;
}

int collect(dl_phdr_info* info, size_t, void* argument) {
  auto& scan = *static_cast<Scan*>(argument);
  scan.loads = info->dlpi_adds;
  scan.unloads = info->dlpi_subs;
  const bool main_program = std::exchange(scan.first, false);
  Seen file = {};
  file.bias = info->dlpi_addr;
  file.main_program = main_program;
  std::strncpy(file.name, base_name(info->dlpi_name == nullptr ? "" : info->dlpi_name), kNameBytes - 1);
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE || file.build_id_bytes != 0) continue;
    read_build_id(reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr), header.p_memsz, header.p_align,
                  file);
  }
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    if (scan.count < scan.capacity) {
      Seen& out = scan.seen[scan.count];
      out = file;
      out.begin = info->dlpi_addr + header.p_vaddr;
      out.end = out.begin + header.p_memsz;
    }
    ++scan.count;
  }
  return 0;
}

std::string program_name() {
  char path[4096];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
  if (bytes <= 0) return "(program)";
  path[bytes] = '\0';
  return base_name(path);
}

std::string hexadecimal(const uint8_t* bytes, size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out;
}

}  // namespace

void Modules::refresh() {
  Scan now;
  dl_iterate_phdr(changed, &now);
  if (!mapped_.empty() && now.loads == loads_ && now.unloads == unloads_) return;
  std::vector<Seen> seen(128);
  Scan scan;
  while (true) {
    scan = Scan{};
    scan.seen = seen.data();
    scan.capacity = seen.size();
    dl_iterate_phdr(collect, &scan);
    if (scan.count <= scan.capacity) break;
    seen.resize(scan.count + scan.count / 4);
  }
  std::vector<Mapped> mapped;
  for (size_t i = 0; i < scan.count; ++i) {
    const Seen& file = seen[i];
    std::string name = file.main_program && file.name[0] == '\0' ? program_name() : file.name;
    mapped.push_back(
        {file.begin, file.end, file.bias, number(std::move(name), hexadecimal(file.build_id, file.build_id_bytes))});
  }
  std::sort(mapped.begin(), mapped.end(), [](const Mapped& a, const Mapped& b) { return a.begin < b.begin; });
  mapped_ = std::move(mapped);
  loads_ = scan.loads;
  unloads_ = scan.unloads;
}

uint32_t Modules::number(std::string name, std::string build_id) {
  for (size_t i = 0; i < named_.size(); ++i) {
    if (named_[i].name == name && named_[i].build_id == build_id) return static_cast<uint32_t>(i);
  }
  named_.push_back({std::move(name), std::move(build_id)});
  return static_cast<uint32_t>(named_.size() - 1);
}

foundry_frame Modules::locate(uint64_t address) const {
  const auto after = std::upper_bound(mapped_.begin(), mapped_.end(), address,
                                      [](uint64_t value, const Mapped& one) { return value < one.begin; });
  if (after == mapped_.begin() || address >= std::prev(after)->end) return {0, FOUNDRY_NO_MODULE, 0};
  return {address - std::prev(after)->bias, std::prev(after)->module, 0};
}

size_t Modules::copy(foundry_module* out, size_t capacity) const {
  for (size_t i = 0; i < named_.size() && i < capacity; ++i)
    out[i] = {named_[i].name.c_str(), named_[i].build_id.c_str()};
  return named_.size();
}

}  // namespace foundry::layout
