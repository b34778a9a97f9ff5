// The driver entry points the hook interposes: one table. Enumerators, resolver, exported symbols, version script and
// tests derive from it. A driver that lacks one of them is no error: nothing of that name is then answered.
#pragma once

#include <cstddef>
#include <cstdint>

// X(exported symbol, base name, cudaTypedefs type, group, since, default stream)
//   base name       what cuGetProcAddress calls it
//   group           what the hook does with it (Group below)
//   since           CUDA version from which cuGetProcAddress(base name) means this symbol
//   default stream  legacy, or per_thread for the spelling that CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM asks for
#define FOUNDRY_INTERPOSED(X)                                                                                          \
  X(cuGetProcAddress, cuGetProcAddress, PFN_cuGetProcAddress_v11030, lookup, 11030, legacy)                            \
  X(cuGetProcAddress_v2, cuGetProcAddress, PFN_cuGetProcAddress_v12000, lookup, 12000, legacy)                         \
                                                                                                                       \
  X(cuModuleLoad, cuModuleLoad, PFN_cuModuleLoad_v2000, image, 2000, legacy)                                           \
  X(cuModuleLoadData, cuModuleLoadData, PFN_cuModuleLoadData_v2000, image, 2000, legacy)                               \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx, PFN_cuModuleLoadDataEx_v2010, image, 2010, legacy)                         \
  X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, PFN_cuModuleLoadFatBinary_v2000, image, 2000, legacy)                \
  X(cuModuleUnload, cuModuleUnload, PFN_cuModuleUnload_v2000, image, 2000, legacy)                                     \
  X(cuLibraryLoadData, cuLibraryLoadData, PFN_cuLibraryLoadData_v12000, image, 12000, legacy)                          \
  X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, PFN_cuLibraryLoadFromFile_v12000, image, 12000, legacy)              \
  X(cuLibraryUnload, cuLibraryUnload, PFN_cuLibraryUnload_v12000, image, 12000, legacy)                                \
  X(cuLinkCreate, cuLinkCreate, PFN_cuLinkCreate_v5050, state, 5050, legacy)                                           \
  X(cuLinkCreate_v2, cuLinkCreate, PFN_cuLinkCreate_v6050, state, 6050, legacy)                                        \
  X(cuLinkAddData, cuLinkAddData, PFN_cuLinkAddData_v5050, state, 5050, legacy)                                        \
  X(cuLinkAddData_v2, cuLinkAddData, PFN_cuLinkAddData_v6050, state, 6050, legacy)                                     \
  X(cuLinkAddFile, cuLinkAddFile, PFN_cuLinkAddFile_v5050, state, 5050, legacy)                                        \
  X(cuLinkAddFile_v2, cuLinkAddFile, PFN_cuLinkAddFile_v6050, state, 6050, legacy)                                     \
  X(cuLinkComplete, cuLinkComplete, PFN_cuLinkComplete_v5050, state, 5050, legacy)                                     \
  X(cuLinkDestroy, cuLinkDestroy, PFN_cuLinkDestroy_v5050, state, 5050, legacy)                                        \
                                                                                                                       \
  X(cuMemAlloc, cuMemAlloc, PFN_cuMemAlloc_v2000, state, 2000, legacy)                                                 \
  X(cuMemAlloc_v2, cuMemAlloc, PFN_cuMemAlloc_v3020, memory, 3020, legacy)                                             \
  X(cuMemAllocPitch, cuMemAllocPitch, PFN_cuMemAllocPitch_v2000, state, 2000, legacy)                                  \
  X(cuMemAllocPitch_v2, cuMemAllocPitch, PFN_cuMemAllocPitch_v3020, memory, 3020, legacy)                              \
  X(cuMemAllocManaged, cuMemAllocManaged, PFN_cuMemAllocManaged_v6000, memory, 6000, legacy)                           \
  X(cuMemFree, cuMemFree, PFN_cuMemFree_v2000, state, 2000, legacy)                                                    \
  X(cuMemFree_v2, cuMemFree, PFN_cuMemFree_v3020, memory, 3020, legacy)                                                \
  X(cuMemAllocAsync, cuMemAllocAsync, PFN_cuMemAllocAsync_v11020, pool, 11020, legacy)                                 \
  X(cuMemAllocAsync_ptsz, cuMemAllocAsync, PFN_cuMemAllocAsync_v11020_ptsz, pool, 11020, per_thread)                   \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, PFN_cuMemAllocFromPoolAsync_v11020, pool, 11020, legacy)         \
  X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, PFN_cuMemAllocFromPoolAsync_v11020_ptsz, pool, 11020,       \
    per_thread)                                                                                                        \
  X(cuMemFreeAsync, cuMemFreeAsync, PFN_cuMemFreeAsync_v11020, pool, 11020, legacy)                                    \
  X(cuMemFreeAsync_ptsz, cuMemFreeAsync, PFN_cuMemFreeAsync_v11020_ptsz, pool, 11020, per_thread)                      \
  X(cuMemPoolCreate, cuMemPoolCreate, PFN_cuMemPoolCreate_v11020, pool, 11020, legacy)                                 \
  X(cuMemPoolDestroy, cuMemPoolDestroy, PFN_cuMemPoolDestroy_v11020, pool, 11020, legacy)                              \
  X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle,                                            \
    PFN_cuMemPoolImportFromShareableHandle_v11020, pool, 11020, legacy)                                                \
  X(cuMemPoolImportPointer, cuMemPoolImportPointer, PFN_cuMemPoolImportPointer_v11020, state, 11020, legacy)           \
                                                                                                                       \
  X(cuMemAllocHost, cuMemAllocHost, PFN_cuMemAllocHost_v2000, host, 2000, legacy)                                      \
  X(cuMemAllocHost_v2, cuMemAllocHost, PFN_cuMemAllocHost_v3020, host, 3020, legacy)                                   \
  X(cuMemHostAlloc, cuMemHostAlloc, PFN_cuMemHostAlloc_v2020, host, 2020, legacy)                                      \
  X(cuMemHostRegister, cuMemHostRegister, PFN_cuMemHostRegister_v4000, host, 4000, legacy)                             \
  X(cuMemHostRegister_v2, cuMemHostRegister, PFN_cuMemHostRegister_v6050, host, 6050, legacy)                          \
  X(cuMemHostUnregister, cuMemHostUnregister, PFN_cuMemHostUnregister_v4000, host, 4000, legacy)                       \
  X(cuMemFreeHost, cuMemFreeHost, PFN_cuMemFreeHost_v2000, host, 2000, legacy)                                         \
                                                                                                                       \
  X(cuMemAddressReserve, cuMemAddressReserve, PFN_cuMemAddressReserve_v10020, virtual_memory, 10020, legacy)           \
  X(cuMemAddressFree, cuMemAddressFree, PFN_cuMemAddressFree_v10020, virtual_memory, 10020, legacy)                    \
  X(cuMemCreate, cuMemCreate, PFN_cuMemCreate_v10020, virtual_memory, 10020, legacy)                                   \
  X(cuMemRelease, cuMemRelease, PFN_cuMemRelease_v10020, virtual_memory, 10020, legacy)                                \
  X(cuMemMap, cuMemMap, PFN_cuMemMap_v10020, virtual_memory, 10020, legacy)                                            \
  X(cuMemUnmap, cuMemUnmap, PFN_cuMemUnmap_v10020, virtual_memory, 10020, legacy)                                      \
  X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, PFN_cuMemImportFromShareableHandle_v10020, state,  \
    10020, legacy)                                                                                                     \
                                                                                                                       \
  X(cuMemGetInfo_v2, cuMemGetInfo, PFN_cuMemGetInfo_v3020, query, 3020, legacy)                                        \
  X(cuMemGetAddressRange_v2, cuMemGetAddressRange, PFN_cuMemGetAddressRange_v3020, query, 3020, legacy)                \
  X(cuPointerGetAttribute, cuPointerGetAttribute, PFN_cuPointerGetAttribute_v4000, query, 4000, legacy)                \
  X(cuPointerGetAttributes, cuPointerGetAttributes, PFN_cuPointerGetAttributes_v7000, query, 7000, legacy)             \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle, PFN_cuIpcGetMemHandle_v4010, query, 4010, legacy)                            \
                                                                                                                       \
  X(cuStreamBeginCapture, cuStreamBeginCapture, PFN_cuStreamBeginCapture_v10000, capture, 10000, legacy)               \
  X(cuStreamBeginCapture_ptsz, cuStreamBeginCapture, PFN_cuStreamBeginCapture_v10000_ptsz, capture, 10000, per_thread) \
  X(cuStreamBeginCapture_v2, cuStreamBeginCapture, PFN_cuStreamBeginCapture_v10010, capture, 10010, legacy)            \
  X(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture, PFN_cuStreamBeginCapture_v10010_ptsz, capture, 10010,          \
    per_thread)                                                                                                        \
  X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, PFN_cuStreamBeginCaptureToGraph_v12030, capture, 12030,  \
    legacy)                                                                                                            \
  X(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, PFN_cuStreamBeginCaptureToGraph_v12030_ptsz,        \
    capture, 12030, per_thread)                                                                                        \
  X(cuStreamEndCapture, cuStreamEndCapture, PFN_cuStreamEndCapture_v10000, capture, 10000, legacy)                     \
  X(cuStreamEndCapture_ptsz, cuStreamEndCapture, PFN_cuStreamEndCapture_v10000_ptsz, capture, 10000, per_thread)       \
  X(cuStreamDestroy, cuStreamDestroy, PFN_cuStreamDestroy_v2000, capture, 2000, legacy)                                \
  X(cuStreamDestroy_v2, cuStreamDestroy, PFN_cuStreamDestroy_v4000, capture, 4000, legacy)                             \
                                                                                                                       \
  X(cuCtxCreate, cuCtxCreate, PFN_cuCtxCreate_v2000, state, 2000, legacy)                                              \
  X(cuCtxCreate_v2, cuCtxCreate, PFN_cuCtxCreate_v3020, state, 3020, legacy)                                           \
  X(cuCtxCreate_v3, cuCtxCreate, PFN_cuCtxCreate_v11040, state, 11040, legacy)                                         \
  X(cuCtxCreate_v4, cuCtxCreate, PFN_cuCtxCreate_v12050, state, 12050, legacy)                                         \
  X(cuCtxDestroy, cuCtxDestroy, PFN_cuCtxDestroy_v2000, context, 2000, legacy)                                         \
  X(cuCtxDestroy_v2, cuCtxDestroy, PFN_cuCtxDestroy_v4000, context, 4000, legacy)                                      \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, PFN_cuDevicePrimaryCtxRetain_v7000, state, 7000, legacy)       \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, PFN_cuDevicePrimaryCtxRelease_v7000, context, 7000, legacy)  \
  X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, PFN_cuDevicePrimaryCtxRelease_v11000, context, 11000,     \
    legacy)                                                                                                            \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, PFN_cuDevicePrimaryCtxReset_v7000, context, 7000, legacy)        \
  X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, PFN_cuDevicePrimaryCtxReset_v11000, context, 11000, legacy)   \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, PFN_cuCtxEnablePeerAccess_v4000, context, 4000, legacy)              \
                                                                                                                       \
  X(cuModuleGetGlobal, cuModuleGetGlobal, PFN_cuModuleGetGlobal_v2000, state, 2000, legacy)                            \
  X(cuModuleGetGlobal_v2, cuModuleGetGlobal, PFN_cuModuleGetGlobal_v3020, variable, 3020, legacy)                      \
  X(cuLibraryGetGlobal, cuLibraryGetGlobal, PFN_cuLibraryGetGlobal_v12000, variable, 12000, legacy)                    \
  X(cuLibraryGetManaged, cuLibraryGetManaged, PFN_cuLibraryGetManaged_v12000, variable, 12000, legacy)                 \
  X(cuFuncSetAttribute, cuFuncSetAttribute, PFN_cuFuncSetAttribute_v9000, state, 9000, legacy)                         \
  X(cuFuncSetCacheConfig, cuFuncSetCacheConfig, PFN_cuFuncSetCacheConfig_v3000, state, 3000, legacy)                   \
  X(cuFuncSetSharedMemConfig, cuFuncSetSharedMemConfig, PFN_cuFuncSetSharedMemConfig_v4020, state, 4020, legacy)       \
  X(cuKernelSetAttribute, cuKernelSetAttribute, PFN_cuKernelSetAttribute_v12000, state, 12000, legacy)                 \
  X(cuKernelSetCacheConfig, cuKernelSetCacheConfig, PFN_cuKernelSetCacheConfig_v12000, state, 12000, legacy)           \
  X(cuCtxSetLimit, cuCtxSetLimit, PFN_cuCtxSetLimit_v3010, state, 3010, legacy)                                        \
  X(cuCtxSetCacheConfig, cuCtxSetCacheConfig, PFN_cuCtxSetCacheConfig_v3020, state, 3020, legacy)                      \
  X(cuCtxSetSharedMemConfig, cuCtxSetSharedMemConfig, PFN_cuCtxSetSharedMemConfig_v4020, state, 4020, legacy)          \
  X(cuCtxSetFlags, cuCtxSetFlags, PFN_cuCtxSetFlags_v12010, state, 12010, legacy)                                      \
  X(cuTexObjectCreate, cuTexObjectCreate, PFN_cuTexObjectCreate_v5000, state, 5000, legacy)                            \
  X(cuTexObjectDestroy, cuTexObjectDestroy, PFN_cuTexObjectDestroy_v5000, state, 5000, legacy)                         \
  X(cuSurfObjectCreate, cuSurfObjectCreate, PFN_cuSurfObjectCreate_v5000, state, 5000, legacy)                         \
  X(cuSurfObjectDestroy, cuSurfObjectDestroy, PFN_cuSurfObjectDestroy_v5000, state, 5000, legacy)

namespace foundry::hook {

enum class Entry : uint32_t {
#define FOUNDRY_ENUMERATOR(symbol, base, type, group, since, stream) symbol,
  FOUNDRY_INTERPOSED(FOUNDRY_ENUMERATOR)
#undef FOUNDRY_ENUMERATOR
};

#define FOUNDRY_COUNT(symbol, base, type, group, since, stream) +1
inline constexpr size_t kEntries = 0 FOUNDRY_INTERPOSED(FOUNDRY_COUNT);
#undef FOUNDRY_COUNT

enum class Group : uint8_t {
  lookup,          // answers are replaced by ours
  image,           // code images: loads recorded, unloads noted
  memory,          // plain allocations: served from the ambient zone where there is one
  pool,            // stream-ordered allocations, likewise unless the stream captures; and the pools
  host,            // host memory: journaled
  virtual_memory,  // mappings by somebody else: journaled
  query,           // sane answers for zone memory
  capture,         // captures in progress defer frees
  context,         // contexts that end take their modules and captures with them
  variable,        // module variables whose address somebody asked for: journaled
  state,           // changes that a graph may depend on: journaled
};

enum class DefaultStream : uint8_t { legacy, per_thread };

// How a call reached the hook. The routes lead on to different functions: another interposer stands in the first only.
enum class Route : uint8_t { exported, dlsym, get_proc_address };
inline constexpr size_t kRoutes = 3;

struct Row {
  const char* symbol;
  const char* base;
  Group group;
  int since;
  DefaultStream stream;
};

inline constexpr Row kRows[kEntries] = {
#define FOUNDRY_ROW(symbol, base, type, group, since, stream) \
  {#symbol, #base, Group::group, since, DefaultStream::stream},
    FOUNDRY_INTERPOSED(FOUNDRY_ROW)
#undef FOUNDRY_ROW
};

constexpr const Row& row(Entry entry) { return kRows[static_cast<size_t>(entry)]; }

}  // namespace foundry::hook
