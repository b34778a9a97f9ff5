// Somebody else's interposer, as people write them: counts, and goes on with dlsym(RTLD_NEXT, ...).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static int calls;
__attribute__((visibility("default"))) int other_calls(void) { return calls; }

__attribute__((visibility("default"))) int cuModuleLoadData(void** module, const void* image) {
  static int (*next)(void**, const void*);
  if (next == NULL) next = (int (*)(void**, const void*))dlsym(RTLD_NEXT, "cuModuleLoadData");
  ++calls;
  return next == NULL ? 999 : next(module, image);
}
