// The files whose code is mapped into this process, and which of them an address of code lies in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "csrc/abi/foundry_abi.h"

namespace foundry::layout {

// Not thread-safe. Files that were unloaded stay in the list: stacks refer to them.
class Modules {
 public:
  // Looks at what is loaded now, if that changed since the last call. Opens no file.
  void refresh();
  // Offset and file; FOUNDRY_NO_MODULE for code that lies in none (generated at run time).
  foundry_frame locate(uint64_t address) const;
  size_t copy(foundry_module* out, size_t capacity) const;

 private:
  struct Named {
    std::string name, build_id;
  };
  struct Mapped {
    uint64_t begin, end, bias;
    uint32_t module;
  };
  uint32_t number(std::string name, std::string build_id);

  std::deque<Named> named_;     // never moves: the ABI hands out its strings
  std::vector<Mapped> mapped_;  // executable segments, by address
  uint64_t loads_ = 0, unloads_ = 0;
};

}  // namespace foundry::layout
