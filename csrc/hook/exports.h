// Symbols that C++ and the assembly of exports.cc share.
#pragma once

#include "csrc/hook/lookup.h"

extern "C" {
__attribute__((visibility("hidden"))) foundry::hook::Answer foundry_hook_dlsym(void* handle, const char* name,
                                                                               const void* caller);
}
