// Module variables of a cubin, from its ELF symbol table: kernels write them without any call that a hook could see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/result.h"

namespace foundry::archive {

struct ElfGlobal {
  std::string symbol;  // mangled
  uint64_t bytes = 0;
  bool constant = false;  // __constant__; otherwise __device__
  bool local = false;     // STB_LOCAL: the driver does not find it by name
  bool initialized = false;
  std::span<const std::byte> initial;  // into the ELF; empty where not `initialized`: the variable starts as zeros
};

// Variables defined in a cubin (64-bit ELF, machine 190) or in an image of the simulated driver, in symbol-table order.
// `corrupt` where a table or symbol lies outside the bytes, `invalid` where it is neither.
Result<std::vector<ElfGlobal>> elf_globals(std::span<const std::byte> elf);

}  // namespace foundry::archive
