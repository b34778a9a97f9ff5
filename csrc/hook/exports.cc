// The exported functions: a jump for each interposed symbol, dlsym, and the owner's table. No CUDA headers here: they
// declare the same names.
#include "csrc/hook/exports.h"

#include "csrc/abi/foundry_abi.h"
#include "csrc/hook/interposed.h"
#include "csrc/hook/lookup.h"
#include "csrc/hook/owner.h"
#include "csrc/hook/settings.h"

#ifndef __x86_64__
#error "the exported symbols are written for x86-64"
#endif

// Linked programs come here; the arguments are passed on as they are.
#define FOUNDRY_EXPORT(symbol, base, type, group, since, stream) \
  asm(".pushsection .text." #symbol                              \
      ", \"ax\", @progbits\n"                                    \
      ".balign 16\n"                                             \
      ".globl " #symbol                                          \
      "\n"                                                       \
      ".type " #symbol ", @function\n" #symbol                   \
      ":\n"                                                      \
      ".cfi_startproc\n"                                         \
      "endbr64\n"                                                \
      "jmp *foundry_hook_target_" #symbol                        \
      "(%rip)\n"                                                 \
      ".cfi_endproc\n"                                           \
      ".size " #symbol ", . - " #symbol                          \
      "\n"                                                       \
      ".popsection\n");
FOUNDRY_INTERPOSED(FOUNDRY_EXPORT)
#undef FOUNDRY_EXPORT

// dlsym: asks foundry_hook_dlsym(handle, name, caller), whose Answer comes back in rax and rdx. Undecided: jumps to the
// real one with the caller's return address on top of the stack, so that glibc sees who asks.
asm(".pushsection .text.dlsym, \"ax\", @progbits\n"
    ".balign 16\n"
    ".globl dlsym\n"
    ".type dlsym, @function\n"
    "dlsym:\n"
    ".cfi_startproc\n"
    "endbr64\n"
    "pushq %rdi\n"
    ".cfi_adjust_cfa_offset 8\n"
    "pushq %rsi\n"
    ".cfi_adjust_cfa_offset 8\n"
    "movq 16(%rsp), %rdx\n"
    "subq $8, %rsp\n"
    ".cfi_adjust_cfa_offset 8\n"
    "call foundry_hook_dlsym\n"
    "addq $8, %rsp\n"
    ".cfi_adjust_cfa_offset -8\n"
    "popq %rsi\n"
    ".cfi_adjust_cfa_offset -8\n"
    "popq %rdi\n"
    ".cfi_adjust_cfa_offset -8\n"
    "testq %rdx, %rdx\n"
    "jnz 1f\n"
    "jmp *%rax\n"
    "1: ret\n"
    ".cfi_endproc\n"
    ".size dlsym, . - dlsym\n"
    ".popsection\n");

extern "C" {

foundry::hook::Answer foundry_hook_dlsym(void* handle, const char* name, const void* caller) {
  return foundry::hook::answer_dlsym(handle, name, caller);
}

// Null where the hook is off: the process has no owner of zones in this library then.
__attribute__((visibility("default"))) const foundry_abi* foundry_abi_v1(void) { return foundry::hook::owner_table(); }

// Reads the environment while it is as the process was started with; opens, prints and allocates nothing.
__attribute__((constructor)) static void foundry_hook_start() { foundry::hook::settings(); }

}  // extern "C"
