// The driver entry points Foundry itself calls: one table, resolved at run time. Nothing links libcuda.
//
// X(name in code, exported symbol, cudaTypedefs type, need)
//   need: required - every supported driver (CUDA 12.4 and later) has it; a driver without it is refused by name
//         optional - may be null; ask Driver::has
#pragma once

#define FOUNDRY_DRIVER_ENTRY_POINTS(X)                                                                                \
  X(cuGetErrorString, cuGetErrorString, PFN_cuGetErrorString_v6000, required)                                         \
  X(cuGetErrorName, cuGetErrorName, PFN_cuGetErrorName_v6000, required)                                               \
  X(cuInit, cuInit, PFN_cuInit_v2000, required)                                                                       \
  X(cuDriverGetVersion, cuDriverGetVersion, PFN_cuDriverGetVersion_v2020, required)                                   \
  X(cuDeviceGet, cuDeviceGet, PFN_cuDeviceGet_v2000, required)                                                        \
  X(cuDeviceGetCount, cuDeviceGetCount, PFN_cuDeviceGetCount_v2000, required)                                         \
  X(cuDeviceGetName, cuDeviceGetName, PFN_cuDeviceGetName_v2000, required)                                            \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, PFN_cuDeviceGetUuid_v11040, required)                                        \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, PFN_cuDeviceGetAttribute_v2000, required)                             \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, PFN_cuDeviceTotalMem_v3020, required)                                      \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, PFN_cuDevicePrimaryCtxRetain_v7000, required)                 \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, PFN_cuDevicePrimaryCtxRelease_v11000, required)          \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, PFN_cuDevicePrimaryCtxGetState_v7000, required)           \
  X(cuCtxGetCurrent, cuCtxGetCurrent, PFN_cuCtxGetCurrent_v4000, required)                                            \
  X(cuCtxSetCurrent, cuCtxSetCurrent, PFN_cuCtxSetCurrent_v4000, required)                                            \
  X(cuCtxGetDevice, cuCtxGetDevice, PFN_cuCtxGetDevice_v2000, required)                                               \
  X(cuCtxSynchronize, cuCtxSynchronize, PFN_cuCtxSynchronize_v2000, required)                                         \
  X(cuMemGetInfo, cuMemGetInfo_v2, PFN_cuMemGetInfo_v3020, required)                                                  \
  X(cuMemAlloc, cuMemAlloc_v2, PFN_cuMemAlloc_v3020, required)                                                        \
  X(cuMemFree, cuMemFree_v2, PFN_cuMemFree_v3020, required)                                                           \
  X(cuMemHostAlloc, cuMemHostAlloc, PFN_cuMemHostAlloc_v2020, required)                                               \
  X(cuMemFreeHost, cuMemFreeHost, PFN_cuMemFreeHost_v2000, required)                                                  \
  X(cuMemAddressReserve, cuMemAddressReserve, PFN_cuMemAddressReserve_v10020, required)                               \
  X(cuMemAddressFree, cuMemAddressFree, PFN_cuMemAddressFree_v10020, required)                                        \
  X(cuMemCreate, cuMemCreate, PFN_cuMemCreate_v10020, required)                                                       \
  X(cuMemRelease, cuMemRelease, PFN_cuMemRelease_v10020, required)                                                    \
  X(cuMemMap, cuMemMap, PFN_cuMemMap_v10020, required)                                                                \
  X(cuMemUnmap, cuMemUnmap, PFN_cuMemUnmap_v10020, required)                                                          \
  X(cuMemSetAccess, cuMemSetAccess, PFN_cuMemSetAccess_v10020, required)                                              \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, PFN_cuMemGetAllocationGranularity_v10020, required) \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, PFN_cuMemcpyHtoD_v3020, required)                                                  \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, PFN_cuMemcpyDtoH_v3020, required)                                                  \
  X(cuMemcpyDtoD, cuMemcpyDtoD_v2, PFN_cuMemcpyDtoD_v3020, required)                                                  \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, PFN_cuMemcpyHtoDAsync_v3020, required)                                   \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, PFN_cuMemcpyDtoHAsync_v3020, required)                                   \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, PFN_cuMemcpyDtoDAsync_v3020, required)                                   \
  X(cuMemsetD8, cuMemsetD8_v2, PFN_cuMemsetD8_v3020, required)                                                        \
  X(cuMemsetD8Async, cuMemsetD8Async, PFN_cuMemsetD8Async_v3020, required)                                            \
  X(cuPointerGetAttributes, cuPointerGetAttributes, PFN_cuPointerGetAttributes_v7000, required)                       \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode,                                             \
    PFN_cuThreadExchangeStreamCaptureMode_v10010, required)                                                           \
  X(cuStreamCreate, cuStreamCreate, PFN_cuStreamCreate_v2000, required)                                               \
  X(cuStreamDestroy, cuStreamDestroy_v2, PFN_cuStreamDestroy_v4000, required)                                         \
  X(cuStreamSynchronize, cuStreamSynchronize, PFN_cuStreamSynchronize_v2000, required)                                \
  X(cuStreamIsCapturing, cuStreamIsCapturing, PFN_cuStreamIsCapturing_v10000, required)                               \
  X(cuStreamWaitEvent, cuStreamWaitEvent, PFN_cuStreamWaitEvent_v3020, required)                                      \
  X(cuEventCreate, cuEventCreate, PFN_cuEventCreate_v2000, required)                                                  \
  X(cuEventDestroy, cuEventDestroy_v2, PFN_cuEventDestroy_v4000, required)                                            \
  X(cuEventRecord, cuEventRecord, PFN_cuEventRecord_v2000, required)                                                  \
  X(cuEventRecordWithFlags, cuEventRecordWithFlags, PFN_cuEventRecordWithFlags_v11010, required)                      \
  X(cuEventQuery, cuEventQuery, PFN_cuEventQuery_v2000, required)                                                     \
  X(cuEventSynchronize, cuEventSynchronize, PFN_cuEventSynchronize_v2000, required)                                   \
  X(cuEventElapsedTime, cuEventElapsedTime, PFN_cuEventElapsedTime_v2000, required)                                   \
  X(cuModuleGetFunction, cuModuleGetFunction, PFN_cuModuleGetFunction_v2000, required)                                \
  X(cuModuleGetGlobal, cuModuleGetGlobal_v2, PFN_cuModuleGetGlobal_v3020, required)                                   \
  X(cuLibraryLoadData, cuLibraryLoadData, PFN_cuLibraryLoadData_v12000, required)                                     \
  X(cuLibraryUnload, cuLibraryUnload, PFN_cuLibraryUnload_v12000, required)                                           \
  X(cuLibraryGetKernel, cuLibraryGetKernel, PFN_cuLibraryGetKernel_v12000, required)                                  \
  X(cuLibraryGetGlobal, cuLibraryGetGlobal, PFN_cuLibraryGetGlobal_v12000, required)                                  \
  X(cuLibraryGetModule, cuLibraryGetModule, PFN_cuLibraryGetModule_v12000, required)                                  \
  X(cuKernelGetFunction, cuKernelGetFunction, PFN_cuKernelGetFunction_v12000, required)                               \
  X(cuKernelGetAttribute, cuKernelGetAttribute, PFN_cuKernelGetAttribute_v12000, required)                            \
  X(cuKernelSetAttribute, cuKernelSetAttribute, PFN_cuKernelSetAttribute_v12000, required)                            \
  X(cuKernelGetName, cuKernelGetName, PFN_cuKernelGetName_v12030, required)                                           \
  X(cuKernelGetParamInfo, cuKernelGetParamInfo, PFN_cuKernelGetParamInfo_v12040, required)                            \
  X(cuKernelGetLibrary, cuKernelGetLibrary, PFN_cuKernelGetLibrary_v12050, optional)                                  \
  X(cuFuncGetModule, cuFuncGetModule, PFN_cuFuncGetModule_v11000, required)                                           \
  X(cuFuncGetName, cuFuncGetName, PFN_cuFuncGetName_v12030, required)                                                 \
  X(cuFuncGetParamInfo, cuFuncGetParamInfo, PFN_cuFuncGetParamInfo_v12040, required)                                  \
  X(cuFuncGetAttribute, cuFuncGetAttribute, PFN_cuFuncGetAttribute_v2020, required)                                   \
  X(cuFuncSetAttribute, cuFuncSetAttribute, PFN_cuFuncSetAttribute_v9000, required)                                   \
  X(cuLaunchKernel, cuLaunchKernel, PFN_cuLaunchKernel_v4000, required)                                               \
  X(cuGraphCreate, cuGraphCreate, PFN_cuGraphCreate_v10000, required)                                                 \
  X(cuGraphDestroy, cuGraphDestroy, PFN_cuGraphDestroy_v10000, required)                                              \
  X(cuGraphGetNodes, cuGraphGetNodes, PFN_cuGraphGetNodes_v10000, required)                                           \
  X(cuGraphGetEdges, cuGraphGetEdges_v2, PFN_cuGraphGetEdges_v12030, required)                                        \
  X(cuGraphNodeGetType, cuGraphNodeGetType, PFN_cuGraphNodeGetType_v10000, required)                                  \
  X(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2, PFN_cuGraphKernelNodeGetParams_v12000, required)       \
  X(cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetAttribute, PFN_cuGraphKernelNodeGetAttribute_v11000, required) \
  X(cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetAttribute, PFN_cuGraphKernelNodeSetAttribute_v11000, required) \
  X(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, PFN_cuGraphMemcpyNodeGetParams_v10000, required)          \
  X(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, PFN_cuGraphMemsetNodeGetParams_v10000, required)          \
  X(cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeGetEvent, PFN_cuGraphEventRecordNodeGetEvent_v11010,        \
    required)                                                                                                         \
  X(cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeGetEvent, PFN_cuGraphEventWaitNodeGetEvent_v11010, required)    \
  X(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, PFN_cuGraphChildGraphNodeGetGraph_v10000, required) \
  X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, PFN_cuGraphAddKernelNode_v12000, required)                         \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, PFN_cuGraphAddMemcpyNode_v10000, required)                            \
  X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, PFN_cuGraphAddMemsetNode_v10000, required)                            \
  X(cuGraphAddEmptyNode, cuGraphAddEmptyNode, PFN_cuGraphAddEmptyNode_v10000, required)                               \
  X(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, PFN_cuGraphAddEventRecordNode_v11010, required)             \
  X(cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, PFN_cuGraphAddEventWaitNode_v11010, required)                   \
  X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, PFN_cuGraphAddChildGraphNode_v10000, required)                \
  X(cuGraphAddDependencies, cuGraphAddDependencies_v2, PFN_cuGraphAddDependencies_v12030, required)                   \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, PFN_cuGraphInstantiateWithFlags_v11040, required)       \
  X(cuGraphUpload, cuGraphUpload, PFN_cuGraphUpload_v11010, required)                                                 \
  X(cuGraphLaunch, cuGraphLaunch, PFN_cuGraphLaunch_v10000, required)                                                 \
  X(cuGraphExecDestroy, cuGraphExecDestroy, PFN_cuGraphExecDestroy_v10000, required)
