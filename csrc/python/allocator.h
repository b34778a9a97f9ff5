// The C functions that torch's CUDAPluggableAllocator (and any engine's allocator) calls: one pair per zone slot, since
// those signatures carry no user data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace foundry::python {

struct AllocatorSymbols {
  std::string library, malloc_name, free_name;
  uint64_t malloc_address = 0, free_address = 0;
};

// Empty library where the slot does not exist.
AllocatorSymbols allocator_symbols(uint32_t slot);
// Sentences of allocations and frees that failed in those functions, which can only return null; clears the list.
std::vector<std::string> take_allocation_errors();

}  // namespace foundry::python
