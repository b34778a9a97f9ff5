// Names of the functions in a file of code, so that frames of a journal can be shown.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/result.h"

namespace foundry::session {

// The symbol table of one ELF file (the dynamic one where the file was stripped). Immutable.
class Symbols {
 public:
  // Reads the tables only. `corrupt` where the file is no 64-bit little-endian ELF file or contradicts itself.
  static Result<std::shared_ptr<Symbols>> read(const std::string& path);

  // Lower-case hexadecimal, empty if the file has none.
  const std::string& build_id() const { return build_id_; }
  // The function around an address as the file has it, readable; empty if no symbol covers it.
  std::string at(uint64_t address) const;

 private:
  struct Symbol {
    uint64_t begin, end;
    uint32_t name;  // into `names_`
  };
  std::string build_id_;
  std::string names_;
  std::vector<Symbol> symbols_;  // by begin
};

// The build-id of an ELF file; empty if it has none. Errors as Symbols::read.
Result<std::string> read_build_id(const std::string& path);

}  // namespace foundry::session
