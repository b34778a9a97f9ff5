// What the pointer scan reads and writes: shared by the device kernel and its CPU version.
#pragma once

#include <cstdint>

namespace foundry::device {

struct AddressRange {
  uint64_t begin, end;
};

struct PointerHit {
  uint64_t address;  // where the word lies
  uint64_t value;    // what it says
};

}  // namespace foundry::device
