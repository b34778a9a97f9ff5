// What the hook does around the driver functions it interposes. Each handler calls `next` with the caller's arguments,
// or answers itself; everything of its own is contained (settings.h). Handlers of several spellings read the row.
#pragma once

#include "csrc/hook/cuda_api.h"
#include "csrc/hook/interposed.h"

namespace foundry::hook {

// lookup
CUresult get_proc_address(const Row& row, PFN_cuGetProcAddress_v11030 next, const char* symbol, void** function,
                          int cuda_version, cuuint64_t flags);
CUresult get_proc_address_v2(const Row& row, PFN_cuGetProcAddress_v12000 next, const char* symbol, void** function,
                             int cuda_version, cuuint64_t flags, CUdriverProcAddressQueryResult* status);

// image
CUresult module_load(const Row& row, PFN_cuModuleLoad_v2000 next, CUmodule* module, const char* path);
CUresult module_load_data(const Row& row, PFN_cuModuleLoadData_v2000 next, CUmodule* module, const void* image);
CUresult module_load_data_ex(const Row& row, PFN_cuModuleLoadDataEx_v2010 next, CUmodule* module, const void* image,
                             unsigned int option_count, CUjit_option* options, void** values);
CUresult module_unload(const Row& row, PFN_cuModuleUnload_v2000 next, CUmodule module);
CUresult library_load_data(const Row& row, PFN_cuLibraryLoadData_v12000 next, CUlibrary* library, const void* code,
                           CUjit_option* jit_options, void** jit_values, unsigned int jit_count,
                           CUlibraryOption* library_options, void** library_values, unsigned int library_count);
CUresult library_load_file(const Row& row, PFN_cuLibraryLoadFromFile_v12000 next, CUlibrary* library, const char* path,
                           CUjit_option* jit_options, void** jit_values, unsigned int jit_count,
                           CUlibraryOption* library_options, void** library_values, unsigned int library_count);
CUresult library_unload(const Row& row, PFN_cuLibraryUnload_v12000 next, CUlibrary library);

// memory
CUresult mem_alloc(const Row& row, PFN_cuMemAlloc_v3020 next, CUdeviceptr* out, size_t bytes);
CUresult mem_alloc_pitch(const Row& row, PFN_cuMemAllocPitch_v3020 next, CUdeviceptr* out, size_t* pitch,
                         size_t width_bytes, size_t height, unsigned int element_bytes);
CUresult mem_alloc_managed(const Row& row, PFN_cuMemAllocManaged_v6000 next, CUdeviceptr* out, size_t bytes,
                           unsigned int flags);
CUresult mem_free(const Row& row, PFN_cuMemFree_v3020 next, CUdeviceptr address);

// pool
CUresult mem_alloc_async(const Row& row, PFN_cuMemAllocAsync_v11020 next, CUdeviceptr* out, size_t bytes,
                         CUstream stream);
CUresult mem_alloc_from_pool(const Row& row, PFN_cuMemAllocFromPoolAsync_v11020 next, CUdeviceptr* out, size_t bytes,
                             CUmemoryPool pool, CUstream stream);
CUresult mem_free_async(const Row& row, PFN_cuMemFreeAsync_v11020 next, CUdeviceptr address, CUstream stream);
CUresult mem_pool_create(const Row& row, PFN_cuMemPoolCreate_v11020 next, CUmemoryPool* pool,
                         const CUmemPoolProps* properties);
CUresult mem_pool_destroy(const Row& row, PFN_cuMemPoolDestroy_v11020 next, CUmemoryPool pool);
CUresult mem_pool_import(const Row& row, PFN_cuMemPoolImportFromShareableHandle_v11020 next, CUmemoryPool* pool,
                         void* handle, CUmemAllocationHandleType type, unsigned long long flags);

// host
CUresult mem_alloc_host_v1(const Row& row, PFN_cuMemAllocHost_v2000 next, void** out, unsigned int bytes);
CUresult mem_alloc_host(const Row& row, PFN_cuMemAllocHost_v3020 next, void** out, size_t bytes);
CUresult mem_host_alloc(const Row& row, PFN_cuMemHostAlloc_v2020 next, void** out, size_t bytes, unsigned int flags);
CUresult mem_host_register(const Row& row, PFN_cuMemHostRegister_v6050 next, void* address, size_t bytes,
                           unsigned int flags);
CUresult mem_host_release(const Row& row, PFN_cuMemFreeHost_v2000 next, void* address);

// virtual_memory
CUresult mem_address_reserve(const Row& row, PFN_cuMemAddressReserve_v10020 next, CUdeviceptr* out, size_t bytes,
                             size_t alignment, CUdeviceptr address, unsigned long long flags);
CUresult mem_address_free(const Row& row, PFN_cuMemAddressFree_v10020 next, CUdeviceptr address, size_t bytes);
CUresult mem_create(const Row& row, PFN_cuMemCreate_v10020 next, CUmemGenericAllocationHandle* handle, size_t bytes,
                    const CUmemAllocationProp* properties, unsigned long long flags);
CUresult mem_release(const Row& row, PFN_cuMemRelease_v10020 next, CUmemGenericAllocationHandle handle);
CUresult mem_map(const Row& row, PFN_cuMemMap_v10020 next, CUdeviceptr address, size_t bytes, size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult mem_unmap(const Row& row, PFN_cuMemUnmap_v10020 next, CUdeviceptr address, size_t bytes);

// query
CUresult mem_get_info(const Row& row, PFN_cuMemGetInfo_v3020 next, size_t* free_bytes, size_t* total_bytes);
CUresult mem_get_address_range(const Row& row, PFN_cuMemGetAddressRange_v3020 next, CUdeviceptr* base, size_t* bytes,
                               CUdeviceptr address);
CUresult pointer_get_attribute(const Row& row, PFN_cuPointerGetAttribute_v4000 next, void* value,
                               CUpointer_attribute attribute, CUdeviceptr address);
CUresult pointer_get_attributes(const Row& row, PFN_cuPointerGetAttributes_v7000 next, unsigned int count,
                                CUpointer_attribute* attributes, void** values, CUdeviceptr address);
CUresult ipc_get_mem_handle(const Row& row, PFN_cuIpcGetMemHandle_v4010 next, CUipcMemHandle* handle,
                            CUdeviceptr address);

// capture
CUresult begin_capture_v1(const Row& row, PFN_cuStreamBeginCapture_v10000 next, CUstream stream);
CUresult begin_capture(const Row& row, PFN_cuStreamBeginCapture_v10010 next, CUstream stream, CUstreamCaptureMode mode);
CUresult begin_capture_to_graph(const Row& row, PFN_cuStreamBeginCaptureToGraph_v12030 next, CUstream stream,
                                CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                                size_t count, CUstreamCaptureMode mode);
CUresult end_capture(const Row& row, PFN_cuStreamEndCapture_v10000 next, CUstream stream, CUgraph* graph);
CUresult stream_destroy(const Row& row, PFN_cuStreamDestroy_v4000 next, CUstream stream);

// context
CUresult ctx_destroy(const Row& row, PFN_cuCtxDestroy_v4000 next, CUcontext context);
CUresult primary_ctx_end(const Row& row, PFN_cuDevicePrimaryCtxReset_v11000 next, CUdevice device);
CUresult ctx_enable_peer_access(const Row& row, PFN_cuCtxEnablePeerAccess_v4000 next, CUcontext peer,
                                unsigned int flags);

// variable
CUresult module_variable(const Row& row, PFN_cuModuleGetGlobal_v3020 next, CUdeviceptr* address, size_t* bytes,
                         CUmodule module, const char* name);
CUresult library_variable(const Row& row, PFN_cuLibraryGetGlobal_v12000 next, CUdeviceptr* address, size_t* bytes,
                          CUlibrary library, const char* name);

}  // namespace foundry::hook
