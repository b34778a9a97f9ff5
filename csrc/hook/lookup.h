// Which lookups are answered with the hook's own functions: dlsym on libcuda, and what the real cuGetProcAddress gave.
#pragma once

#include <cstdint>

#include "csrc/hook/interposed.h"

namespace foundry::hook {

// In two registers, as the assembly of dlsym expects it.
struct Answer {
  const void* value;  // decided: what dlsym returns; else: the function to jump to with the caller's arguments
  uint64_t decided;
};

// dlsym(handle, name) called from the code at `caller`. Undecided for everything but the interposed names: glibc then
// resolves RTLD_NEXT and RTLD_DEFAULT relative to the caller, which must be kept.
Answer answer_dlsym(void* handle, const char* name, const void* caller) noexcept;

// What to hand out for `found`, the real cuGetProcAddress's answer for base name `name`: our function if it is an entry
// point we interpose, else `found`.
void* substitute(const char* name, void* found, int cuda_version, uint64_t flags) noexcept;

// The hook's function for a route (dispatch.cc).
const void* handler(Route route, Entry entry) noexcept;

}  // namespace foundry::hook
