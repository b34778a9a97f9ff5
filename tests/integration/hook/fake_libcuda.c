// A driver for tests of lookups alone: it counts calls by the exact spelling that was reached. FAKE_PRIVATE=1: the
// answers of cuGetProcAddress are other functions than the exported ones; FAKE_VERSION: what it supports.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_FOUND = 500 };
#define EXPORT __attribute__((visibility("default")))

#define COUNTED(X)                                                                                                    \
  X(cuModuleLoadData)                                                                                                 \
  X(cuMemAlloc) X(cuMemAlloc_v2) X(cuMemAllocAsync) X(cuMemAllocAsync_ptsz) X(cuMemFree_v2) X(cuStreamBeginCapture)   \
      X(cuStreamBeginCapture_v2) X(cuStreamBeginCapture_v2_ptsz) X(cuGetProcAddress) X(cuGetProcAddress_v2) X(cuInit) \
          X(cuStreamEndCapture)

enum {
#define X(name) kind_##name,
  COUNTED(X)
#undef X
      kinds
};
static const char* const names[kinds] = {
#define X(name) #name,
    COUNTED(X)
#undef X
};
static int exported_calls[kinds], private_calls[kinds];

EXPORT int fake_calls(const char* name, int through_private) {
  for (int i = 0; i < kinds; ++i) {
    if (strcmp(names[i], name) == 0) return through_private ? private_calls[i] : exported_calls[i];
  }
  return -1;
}

// One body, reached through the exported name or the private one.
#define DEFINE(name, parameters, arguments, body)                                \
  static CUresult body_##name parameters{body} EXPORT CUresult name parameters { \
    ++exported_calls[kind_##name];                                               \
    return body_##name arguments;                                                \
  }                                                                              \
  static CUresult private_##name parameters {                                    \
    ++private_calls[kind_##name];                                                \
    return body_##name arguments;                                                \
  }

static uintptr_t fresh = 0x7000000000;

DEFINE(cuInit, (unsigned flags), (flags), return flags == 0 ? SUCCESS : INVALID_VALUE;)
DEFINE(cuModuleLoadData, (void** module, const void* image), (module, image), {
  if (image == NULL) return INVALID_VALUE;
  *module = (void*)++fresh;
  return SUCCESS;
})
DEFINE(cuMemAlloc, (unsigned* out, unsigned bytes), (out, bytes), {
  *out = 0x1000 + bytes;
  return SUCCESS;
})
DEFINE(cuMemAlloc_v2, (uint64_t* out, size_t bytes), (out, bytes), {
  *out = fresh += bytes;
  return SUCCESS;
})
DEFINE(cuMemAllocAsync, (uint64_t* out, size_t bytes, void* stream), (out, bytes, stream), {
  *out = fresh += bytes;
  return SUCCESS;
})
DEFINE(cuMemAllocAsync_ptsz, (uint64_t* out, size_t bytes, void* stream), (out, bytes, stream), {
  *out = fresh += bytes;
  return SUCCESS;
})
DEFINE(cuMemFree_v2, (uint64_t address), (address), return address == 1 ? INVALID_VALUE : SUCCESS;)
DEFINE(cuStreamBeginCapture, (void* stream), (stream), return SUCCESS;)
DEFINE(cuStreamBeginCapture_v2, (void* stream, int mode), (stream, mode), return mode == 7 ? INVALID_VALUE : SUCCESS;)
DEFINE(cuStreamBeginCapture_v2_ptsz, (void* stream, int mode), (stream, mode), return SUCCESS;)
DEFINE(cuStreamEndCapture, (void* stream, void** graph), (stream, graph), return SUCCESS;)

static CUresult lookup(const char* base, void** out, int version, uint64_t flags, int* status);
DEFINE(cuGetProcAddress, (const char* base, void** out, int version, uint64_t flags), (base, out, version, flags), {
  int status = 0;
  return lookup(base, out, version, flags, &status);
})
DEFINE(cuGetProcAddress_v2, (const char* base, void** out, int version, uint64_t flags, int* status),
       (base, out, version, flags, status), return lookup(base, out, version, flags, status);)

#define SPELLING(base, since, per_thread, name) \
  {#base, since, per_thread, kind_##name, (void*)name, (void*)private_##name},
static const struct {
  const char* base;
  int since, per_thread, kind;
  void *exported, *hidden;
} spellings[] = {SPELLING(cuInit, 2000, 0, cuInit) SPELLING(cuModuleLoadData, 2000, 0, cuModuleLoadData)
                     SPELLING(cuMemAlloc, 2000, 0, cuMemAlloc) SPELLING(cuMemAlloc, 3020, 0, cuMemAlloc_v2)
                         SPELLING(cuMemAllocAsync, 11020, 0, cuMemAllocAsync) SPELLING(
                             cuMemAllocAsync, 11020, 1, cuMemAllocAsync_ptsz) SPELLING(cuMemFree, 3020, 0, cuMemFree_v2)
                             SPELLING(cuStreamBeginCapture, 10000, 0, cuStreamBeginCapture)
                                 SPELLING(cuStreamBeginCapture, 10010, 0, cuStreamBeginCapture_v2)
                                     SPELLING(cuStreamBeginCapture, 10010, 1, cuStreamBeginCapture_v2_ptsz)
                                         SPELLING(cuStreamEndCapture, 10000, 0, cuStreamEndCapture)
                                             SPELLING(cuGetProcAddress, 11030, 0, cuGetProcAddress)
                                                 SPELLING(cuGetProcAddress, 12000, 0, cuGetProcAddress_v2)};

static CUresult lookup(const char* base, void** out, int version, uint64_t flags, int* status) {
  if (base == NULL || out == NULL || flags > 2) return INVALID_VALUE;
  const char* text = getenv("FAKE_VERSION");
  const int supported = text != NULL ? atoi(text) : 13000;
  const int hidden = getenv("FAKE_PRIVATE") != NULL;
  int best = -1, known = 0;
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; ++i) {
    if (strcmp(spellings[i].base, base) != 0) continue;
    known = 1;
    if (spellings[i].since > version || spellings[i].since > supported) continue;
    if (spellings[i].per_thread && flags != 2) continue;
    if (best < 0 || spellings[i].since >= spellings[best].since) best = (int)i;
  }
  *out = best < 0 ? NULL : hidden ? spellings[best].hidden : spellings[best].exported;
  if (status != NULL) *status = best >= 0 ? 0 : known ? 2 : 1;
  return best < 0 && status == NULL ? NOT_FOUND : SUCCESS;
}
