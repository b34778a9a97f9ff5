// Many threads at once through the exported symbols: allocations, modules, captures, lookups and the owner's table.
// usage: threads IMAGE THREADS ROUNDS; prints "ok" or what went wrong.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/abi/foundry_abi.h"

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cuMemAlloc_v2(uint64_t* out, size_t bytes);
int cuMemAllocAsync(uint64_t* out, size_t bytes, void* stream);
int cuMemFree_v2(uint64_t address);
int cuMemFreeAsync(uint64_t address, void* stream);
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t bytes);
int cuMemGetAddressRange_v2(uint64_t* base, size_t* bytes, uint64_t address);
int cuMemGetInfo_v2(size_t* free, size_t* total);
int cuModuleLoadData(void** module, const void* image);
int cuModuleUnload(void* module);
int cuStreamCreate(void** stream, unsigned flags);
int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuGraphDestroy(void* graph);

static void* context;
static char* image;
static long image_bytes;
static int rounds;

#define CHECK(call)                                               \
  do {                                                            \
    const int code = (call);                                      \
    if (code != 0) {                                              \
      printf("line %d: " #call " returned %d\n", __LINE__, code); \
      return (void*)1;                                            \
    }                                                             \
  } while (0)

static void* work(void* number) {
  unsigned seed = (unsigned)(uintptr_t)number;
  void* stream = NULL;
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamCreate(&stream, 1));
  for (int i = 0; i < rounds; ++i) {
    uint64_t plain = 0, ordered = 0, base = 0;
    size_t bytes = 1 + (size_t)rand_r(&seed) % (i % 2 ? 4096 : 3 << 20), size = 0, total = 0;
    CHECK(cuMemAlloc_v2(&plain, bytes));
    CHECK(cuMemsetD8_v2(plain, (unsigned char)i, bytes));
    CHECK(cuMemGetAddressRange_v2(&base, &size, plain + bytes - 1));
    if (base != plain || size != bytes) CHECK(-1);
    CHECK(cuMemAllocAsync(&ordered, bytes, stream));

    char* heap = malloc((size_t)image_bytes);
    memcpy(heap, image, (size_t)image_bytes);
    void* module = NULL;
    CHECK(cuModuleLoadData(&module, heap));
    memset(heap, 0, (size_t)image_bytes);
    free(heap);

    void *graph = NULL, *library = dlopen("libcuda.so.1", RTLD_LAZY);
    CHECK(cuStreamBeginCapture_v2(stream, 2));
    CHECK(cuMemFree_v2(plain));
    if (dlsym(library, "cuModuleLoadData") == NULL || dlsym(RTLD_DEFAULT, "cuMemFree_v2") == NULL) CHECK(-1);
    if (dlsym(library, "cuNoSuchFunction") != NULL || dlerror() == NULL) CHECK(-1);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    dlclose(library);

    CHECK(cuModuleUnload(module));
    CHECK(cuMemFreeAsync(ordered, stream));
    CHECK(cuMemGetInfo_v2(&size, &total));
  }
  return NULL;
}

static void* watch(void* abi_pointer) {
  const foundry_abi* abi = abi_pointer;
  foundry_error error;
  for (int i = 0; i < rounds; ++i) {
    foundry_image images[64];
    foundry_event events[64];
    foundry_zone_info zones[FOUNDRY_MAX_ZONES];
    abi->images(images, 64);
    abi->events((uint64_t)i, events, 64);
    abi->zones(zones, FOUNDRY_MAX_ZONES);
    abi->release_quarantine(FOUNDRY_NO_ZONE, &error);  // refused while a capture runs
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  FILE* file = fopen(argv[1], "rb");
  if (file == NULL) return 2;
  fseek(file, 0, SEEK_END);
  image_bytes = ftell(file);
  rewind(file);
  image = malloc((size_t)image_bytes);
  if (fread(image, 1, (size_t)image_bytes, file) != (size_t)image_bytes) return 2;
  fclose(file);
  rounds = atoi(argv[3]);
  const int count = atoi(argv[2]);
  if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0) return 2;

  const foundry_abi_getter getter = (foundry_abi_getter)dlsym(RTLD_DEFAULT, FOUNDRY_ABI_SYMBOL);
  const foundry_abi* abi = getter == NULL ? NULL : getter();
  if (abi != NULL && abi->bytes != sizeof *abi) return 3;
  pthread_t threads[64], watcher;
  if (abi != NULL) pthread_create(&watcher, NULL, watch, (void*)abi);
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, work, (void*)(uintptr_t)(i + 1));
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    failed |= result != NULL;
  }
  if (abi != NULL) {
    pthread_join(watcher, NULL);
    foundry_error error;
    const size_t images = abi->images(NULL, 0);
    if (images != (size_t)(count * rounds)) failed = printf("%zu images\n", images);
    if (abi->release_quarantine(FOUNDRY_NO_ZONE, &error) != 0) failed = printf("%s\n", error.text);
    if (abi->diagnoses(NULL, 0) != 0) {
      char text[4096];
      abi->diagnoses(text, sizeof text);
      failed = printf("%s\n", text);
    }
  }
  if (!failed) puts("ok");
  return failed ? 1 : 0;
}
