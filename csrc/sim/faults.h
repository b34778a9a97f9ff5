// Faults on demand. A specification is a list of rules separated by ';':
//   NAME:N:ERROR       the N-th call of NAME fails; N may be "*" (every call) or "N+" (from the N-th on)
//   NAME:N:delay=MS    that call starts MS milliseconds late
//   alloc>BYTES        every single allocation of more than BYTES bytes is out of memory
// NAME is an exported symbol or a base name (then all its spellings count together); ERROR is a number or the name of a
// CUresult. The environment variable FOUNDRY_SIM_FAULT holds the first specification.
#pragma once

#include <cstddef>
#include <string>

#include "csrc/sim/runtime.h"

namespace foundry::sim {

struct Injected {
  CUresult error = CUDA_SUCCESS;
  int delay_ms = 0;
};

// Counts the call and says what is to happen to it.
Injected count_call(Fn fn, bool per_thread_default);
bool allocation_refused(std::size_t bytes);
bool set_faults(const char* spec);

}  // namespace foundry::sim
