#include "csrc/archive/elf_globals.h"

#include <elf.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
// Images of the simulated driver are host objects with the sections of a cubin.
constexpr uint16_t kMachineSimulated = EM_X86_64;
constexpr std::string_view kGlobal = ".nv.global", kGlobalInit = ".nv.global.init", kConstant = ".nv.constant3";

Error damaged(const std::string& why) { return {ErrorKind::corrupt, 0, "The cubin is damaged: " + why + "."}; }

class Elf {
 public:
  explicit Elf(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  std::optional<T> at(uint64_t offset) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) return std::nullopt;
    T out;
    std::memcpy(&out, bytes_.data() + offset, sizeof out);
    return out;
  }
  std::optional<std::span<const std::byte>> range(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) return std::nullopt;
    return bytes_.subspan(offset, size);
  }

 private:
  std::span<const std::byte> bytes_;
};

// A NUL-terminated string inside a string table.
std::optional<std::string_view> text_at(std::span<const std::byte> table, uint64_t offset) {
  if (offset >= table.size()) return std::nullopt;
  const char* begin = reinterpret_cast<const char*>(table.data()) + offset;
  const void* end = std::memchr(begin, 0, table.size() - offset);
  if (end == nullptr) return std::nullopt;
  return std::string_view(begin, static_cast<size_t>(static_cast<const char*>(end) - begin));
}

}  // namespace

Result<std::vector<ElfGlobal>> elf_globals(std::span<const std::byte> bytes) {
  const Elf elf(bytes);
  const auto header = elf.at<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB ||
      (header->e_machine != kMachineCuda && header->e_machine != kMachineSimulated)) {
    return Error{ErrorKind::invalid, 0, "These bytes are no cubin (64-bit ELF for machine 190)."};
  }
  if (header->e_shentsize != sizeof(Elf64_Shdr)) return damaged("its section headers have an unknown size");
  // More than 65279 sections are counted in the first section header.
  const auto first = elf.at<Elf64_Shdr>(header->e_shoff);
  if (!first) return damaged("its section headers lie outside the file");
  const uint64_t count = header->e_shnum != 0 ? header->e_shnum : first->sh_size;
  const uint32_t names_index = header->e_shstrndx != SHN_XINDEX ? header->e_shstrndx : first->sh_link;
  if (count > bytes.size() / sizeof(Elf64_Shdr) || !elf.range(header->e_shoff, count * sizeof(Elf64_Shdr)) ||
      names_index >= count) {
    return damaged("its section headers lie outside the file");
  }
  std::vector<Elf64_Shdr> sections(count);
  std::memcpy(sections.data(), bytes.data() + header->e_shoff, count * sizeof(Elf64_Shdr));
  const auto names = elf.range(sections[names_index].sh_offset, sections[names_index].sh_size);
  if (!names) return damaged("its section names lie outside the file");

  std::vector<ElfGlobal> out;
  bool named = false;
  for (const Elf64_Shdr& table : sections) {
    if (table.sh_type != SHT_SYMTAB) continue;
    named = true;
    const auto symbols = elf.range(table.sh_offset, table.sh_size);
    if (!symbols || table.sh_entsize != sizeof(Elf64_Sym) || table.sh_size % sizeof(Elf64_Sym) != 0 ||
        table.sh_link >= count) {
      return damaged("its symbol table lies outside the file");
    }
    const auto strings = elf.range(sections[table.sh_link].sh_offset, sections[table.sh_link].sh_size);
    if (!strings) return damaged("its symbol names lie outside the file");
    for (uint64_t at = 0; at < symbols->size(); at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, symbols->data() + at, sizeof symbol);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_size == 0) continue;
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= SHN_LORESERVE) continue;
      const uint64_t number = at / sizeof(Elf64_Sym);
      if (symbol.st_shndx >= count)
        return damaged(format("symbol %llu names no section", static_cast<unsigned long long>(number)));
      const Elf64_Shdr& section = sections[symbol.st_shndx];
      const auto section_name = text_at(*names, section.sh_name);
      if (!section_name) return damaged("a section's name lies outside the table of names");
      if (*section_name != kGlobal && *section_name != kGlobalInit && *section_name != kConstant) continue;
      const auto symbol_name = text_at(*strings, symbol.st_name);
      if (!symbol_name || symbol_name->empty()) {
        return damaged(format("symbol %llu has no name", static_cast<unsigned long long>(number)));
      }
      // An offset within the section where sections have no addresses, as in a cubin; else an address.
      if (symbol.st_value < section.sh_addr) {
        return damaged("variable " + std::string(*symbol_name) + " lies before its section");
      }
      symbol.st_value -= section.sh_addr;
      if (symbol.st_value > section.sh_size || symbol.st_size > section.sh_size - symbol.st_value) {
        return damaged("variable " + std::string(*symbol_name) + " reaches beyond its section");
      }
      ElfGlobal global;
      global.symbol = *symbol_name;
      global.bytes = symbol.st_size;
      global.constant = *section_name == kConstant;
      global.local = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL;
      global.initialized = section.sh_type != SHT_NOBITS;
      if (global.initialized) {
        const auto content = elf.range(section.sh_offset, section.sh_size);
        if (!content) return damaged("section " + std::string(*section_name) + " lies outside the file");
        global.initial = content->subspan(symbol.st_value, symbol.st_size);
      }
      out.push_back(std::move(global));
    }
  }
  // A stripped cubin must not pass for one without variables: theirs would silently keep their initial values.
  for (size_t i = 0; !named && i < sections.size(); ++i) {
    const auto name = text_at(*names, sections[i].sh_name);
    if (sections[i].sh_size != 0 && name && (*name == kGlobal || *name == kGlobalInit || *name == kConstant)) {
      return damaged("it has variables (section " + std::string(*name) + ") but no symbol table: it was stripped");
    }
  }
  return out;
}

}  // namespace foundry::archive
