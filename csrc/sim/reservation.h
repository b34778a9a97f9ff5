// Reserved address ranges, physical handles, and who may access a mapping.
#pragma once

#include "csrc/sim/memory.h"

namespace foundry::sim {

struct Reservation {
  std::size_t bytes = 0;
};
std::map<std::uintptr_t, Reservation>& reservations();
HandleTable<Physical, CUmemGenericAllocationHandle, Kind::kPhysical>& physicals();

}  // namespace foundry::sim
