// Prints what dlsym finds, for every kind of handle and several callers: this program and libraries (lookups_plugin.c).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef PLUGIN
#define LOOK plugin_look
#else
#define LOOK look
#endif

static const char* const names[] = {"malloc", "cuInit", "cuMemAlloc_v2", "cuModuleLoadData", "cuNoSuchFunction",
                                    "marker", ""};

// In the library whose caller glibc must see.
__attribute__((visibility("default"))) void LOOK(const char* who, void* handle, const char* kind) {
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    dlerror();
    void* found = dlsym(handle, names[i]);
    const char* error = dlerror();
    Dl_info info = {0};
    if (found != NULL) dladdr(found, &info);
    const char* file = info.dli_fname == NULL ? NULL : strrchr(info.dli_fname, '/');
    printf("%s %s '%s': %s%s\n", who, kind, names[i],
           found == NULL  ? "nothing, "
           : file == NULL ? "?"
                          : file + 1,
           found == NULL ? (error == NULL ? "no error" : "an error") : "");
  }
}

#ifdef PLUGIN
__attribute__((visibility("default"))) int marker(void) { return PLUGIN; }
__attribute__((visibility("default"))) void plugin_look_all(const char* who) {
  plugin_look(who, RTLD_NEXT, "RTLD_NEXT");
  plugin_look(who, RTLD_DEFAULT, "RTLD_DEFAULT");
}
#else
// usage: lookups [library...]: each is opened RTLD_LOCAL, and asked to look if it can.
int main(int argc, char** argv) {
  look("program", RTLD_NEXT, "RTLD_NEXT");
  look("program", RTLD_DEFAULT, "RTLD_DEFAULT");
  look("program", dlopen(NULL, RTLD_LAZY), "dlopen(NULL)");
  look("program", dlopen("libc.so.6", RTLD_LAZY), "libc");
  for (int i = 1; i < argc; ++i) {
    void* library = dlopen(argv[i], RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) {
      printf("cannot open %s: %s\n", argv[i], dlerror());
      return 1;
    }
    void (*all)(const char*) = (void (*)(const char*))dlsym(library, "plugin_look_all");
    const char* name = strrchr(argv[i], '/') + 1;
    if (all != NULL) all(name);
    look("program", library, name);
  }
  return 0;
}
#endif
