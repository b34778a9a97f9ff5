// Prints what libcuda_hook.so exports: one symbol a line, or with --version-script the linker's version script.
#include <cstdio>
#include <cstring>

#include "csrc/hook/interposed.h"

int main(int argc, char** argv) {
  const bool script = argc > 1 && std::strcmp(argv[1], "--version-script") == 0;
  const char* pattern = script ? "    %s;\n" : "%s\n";
  if (script) std::puts("{\n  global:");
  for (const foundry::hook::Row& row : foundry::hook::kRows) std::printf(pattern, row.symbol);
  std::printf(pattern, "dlsym");
  std::printf(pattern, "foundry_abi_v1");
  if (script) std::puts("  local:\n    *;\n};");
  return 0;
}
