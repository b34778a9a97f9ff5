// A library with code images as nvcc puts them into one: a fatbin in read-only data, followed by another one, and
// wrappers of both versions that point to the first.
#include <stdint.h>

__asm__(
    ".section .nv_fatbin, \"a\", @progbits\n"
    ".balign 8\n"
    ".hidden first\n"
    "first: .incbin \"" IMAGE
    "\"\n"
    ".balign 8\n"
    "second: .incbin \"" IMAGE
    "\"\n"
    ".previous\n");
extern const char first[];

struct wrapper {
  uint32_t magic, version;
  const void *data, *files;
};
__attribute__((visibility("default"))) const struct wrapper wrapper_v1 = {0x466243b1, 1, first, 0};
__attribute__((visibility("default"))) const struct wrapper wrapper_v2 = {0x466243b1, 2, first, first};
__attribute__((visibility("default"))) const void* image_address(void) { return first; }
