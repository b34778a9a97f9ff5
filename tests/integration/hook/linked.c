// A program linked with libcuda: loads a module and allocates through the exported symbols. Its image is in its
// read-only data.
#include <stdint.h>
#include <stdio.h>

int cuInit(unsigned flags);
int cuModuleLoadData(void** module, const void* image);
int cuMemAlloc_v2(uint64_t* out, size_t bytes);
int cuMemFree_v2(uint64_t address);

static const char image[] = "//\n.version 8.0\n.target sm_80\n";

int main(void) {
  void* module = NULL;
  uint64_t address = 0;
  printf("%d %d", cuInit(0), cuModuleLoadData(&module, image));
  printf(" %d", cuMemAlloc_v2(&address, 4096));
  printf(" %d %d\n", cuMemFree_v2(address), cuMemFree_v2(1));
  return 0;
}
