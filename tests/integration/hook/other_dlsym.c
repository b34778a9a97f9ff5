// Somebody else's interposer of the other kind: overrides dlsym and answers for libcuda with its own functions.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static int calls;
static int (*real_load)(void**, const void*);
__attribute__((visibility("default"))) int other_calls(void) { return calls; }

static int load(void** module, const void* image) {
  ++calls;
  return real_load(module, image);
}

__attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
  static void* (*next)(void*, const char*);
  if (next == NULL) next = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (next == NULL) next = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (handle != RTLD_NEXT && handle != RTLD_DEFAULT && strcmp(name, "cuModuleLoadData") == 0) {
    void* found = next(handle, name);
    if (found == NULL) return NULL;
    real_load = (int (*)(void**, const void*))found;
    return (void*)load;
  }
  return next(handle, name);
}
