#include "csrc/session/symbols.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "csrc/archive/files.h"
#include "csrc/base/text.h"

namespace foundry::session {
namespace {

// Bounds on what a file can make us read; the largest libraries in use have tables of some 100 MiB.
constexpr uint64_t kMostTableBytes = 1ull << 30;
constexpr uint64_t kMostNoteBytes = 1ull << 16;
constexpr uint32_t kMostSections = 1u << 16;

class ElfFile {
 public:
  static Result<ElfFile> open(const std::string& path) {
    ElfFile elf;
    elf.path_ = path;
    elf.fd_ = archive::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!elf.fd_) return archive::io_error("cannot open", path, errno);
    struct stat info;
    if (fstat(elf.fd_.get(), &info) != 0) return archive::io_error("cannot examine", path, errno);
    if (!S_ISREG(info.st_mode)) return elf.damaged("it is no regular file");
    elf.bytes_ = static_cast<uint64_t>(info.st_size);
    FOUNDRY_ASSIGN(const auto header, elf.read<Elf64_Ehdr>(0, 1));
    if (std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 || header[0].e_ident[EI_CLASS] != ELFCLASS64 ||
        header[0].e_ident[EI_DATA] != ELFDATA2LSB) {
      return elf.damaged("it is no 64-bit little-endian ELF file");
    }
    if (header[0].e_shoff != 0 && header[0].e_shentsize != sizeof(Elf64_Shdr)) {
      return elf.damaged("its section headers have another size");
    }
    uint64_t count = header[0].e_shnum;
    if (count == 0 && header[0].e_shoff != 0) {  // more than a 16-bit number can say
      FOUNDRY_ASSIGN(const auto first, elf.read<Elf64_Shdr>(header[0].e_shoff, 1));
      count = first[0].sh_size;
    }
    if (count > kMostSections) return elf.damaged("it has too many sections");
    FOUNDRY_ASSIGN(elf.sections_, elf.read<Elf64_Shdr>(header[0].e_shoff, count));
    return elf;
  }

  Error damaged(const std::string& why) const {
    return Error{ErrorKind::corrupt, 0, path_ + " cannot be read for names of functions: " + why + "."};
  }

  template <class Record>
  Result<std::vector<Record>> read(uint64_t offset, uint64_t count, uint64_t most_bytes = kMostTableBytes) const {
    if (count == 0) return std::vector<Record>();
    if (count > most_bytes / sizeof(Record) || offset > bytes_ || count * sizeof(Record) > bytes_ - offset) {
      return damaged("a table does not lie inside it");
    }
    std::vector<Record> out(count);
    FOUNDRY_TRY(archive::read_exactly(fd_.get(), offset, std::as_writable_bytes(std::span(out)), path_));
    return out;
  }

  const std::vector<Elf64_Shdr>& sections() const { return sections_; }

  const Elf64_Shdr* find(uint32_t type) const {
    const auto found =
        std::find_if(sections_.begin(), sections_.end(), [=](const auto& s) { return s.sh_type == type; });
    return found == sections_.end() ? nullptr : &*found;
  }

  Result<std::string> build_id() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_NOTE || section.sh_size > kMostNoteBytes) continue;
      FOUNDRY_ASSIGN(const auto bytes, read<uint8_t>(section.sh_offset, section.sh_size, kMostNoteBytes));
      const uint64_t step = section.sh_addralign == 8 ? 8 : 4;
      const auto padded = [step](uint64_t n) { return (n + step - 1) / step * step; };
      for (uint64_t at = 0; bytes.size() - at >= sizeof(Elf64_Nhdr);) {
        Elf64_Nhdr note;
        std::memcpy(&note, bytes.data() + at, sizeof note);
        const uint64_t content = at + sizeof note + padded(note.n_namesz), next = content + padded(note.n_descsz);
        if (content + note.n_descsz > bytes.size()) break;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            std::memcmp(bytes.data() + at + sizeof note, "GNU", 4) == 0) {
          std::string id;
          for (uint64_t i = 0; i < note.n_descsz; ++i) {
            id += kDigits[bytes[content + i] >> 4];
            id += kDigits[bytes[content + i] & 15];
          }
          return id;
        }
        if (next > bytes.size()) break;
        at = next;
      }
    }
    return std::string();
  }

 private:
  std::string path_;
  archive::FileDescriptor fd_;
  uint64_t bytes_ = 0;
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace

Result<std::string> read_build_id(const std::string& path) {
  FOUNDRY_ASSIGN(const ElfFile elf, ElfFile::open(path));
  return elf.build_id();
}

Result<std::shared_ptr<Symbols>> Symbols::read(const std::string& path) {
  FOUNDRY_ASSIGN(const ElfFile elf, ElfFile::open(path));
  std::shared_ptr<Symbols> out(new Symbols);
  FOUNDRY_ASSIGN(out->build_id_, elf.build_id());
  const Elf64_Shdr* table = elf.find(SHT_SYMTAB);
  if (table == nullptr) table = elf.find(SHT_DYNSYM);
  if (table == nullptr) return out;
  if (table->sh_entsize != sizeof(Elf64_Sym) || table->sh_link >= elf.sections().size()) {
    return elf.damaged("its symbol table has another form");
  }
  const Elf64_Shdr& names = elf.sections()[table->sh_link];
  FOUNDRY_ASSIGN(const auto symbols, elf.read<Elf64_Sym>(table->sh_offset, table->sh_size / sizeof(Elf64_Sym)));
  FOUNDRY_ASSIGN(const auto text, elf.read<char>(names.sh_offset, names.sh_size));
  out->names_.assign(text.begin(), text.end());
  for (const Elf64_Sym& symbol : symbols) {
    const unsigned type = ELF64_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0) continue;
    if (symbol.st_name >= out->names_.size() || symbol.st_size > UINT64_MAX - symbol.st_value) continue;
    out->symbols_.push_back({symbol.st_value, symbol.st_value + symbol.st_size, symbol.st_name});
  }
  std::sort(out->symbols_.begin(), out->symbols_.end(),
            [](const Symbol& a, const Symbol& b) { return a.begin < b.begin; });
  return out;
}

std::string Symbols::at(uint64_t address) const {
  auto found = std::upper_bound(symbols_.begin(), symbols_.end(), address,
                                [](uint64_t value, const Symbol& symbol) { return value < symbol.begin; });
  if (found == symbols_.begin() || address >= std::prev(found)->end) return {};
  return demangle(names_.c_str() + std::prev(found)->name);
}

}  // namespace foundry::session
