// cuda.h maps plain names to versioned symbols by macro (cuMemAlloc -> cuMemAlloc_v2). Inside Foundry the table names
// the symbol, so the macros go. Kept in step with entry_points.h by tests/unit/driver.
#pragma once

#undef cuDeviceGetUuid
#undef cuDeviceTotalMem
#undef cuDevicePrimaryCtxRelease
#undef cuMemGetInfo
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemcpyHtoD
#undef cuMemcpyDtoH
#undef cuMemcpyDtoD
#undef cuMemcpyHtoDAsync
#undef cuMemcpyDtoHAsync
#undef cuMemcpyDtoDAsync
#undef cuMemsetD8
#undef cuMemsetD8Async
#undef cuStreamDestroy
#undef cuStreamSynchronize
#undef cuStreamIsCapturing
#undef cuEventDestroy
#undef cuEventRecord
#undef cuEventElapsedTime
#undef cuModuleGetGlobal
#undef cuLaunchKernel
#undef cuGraphGetEdges
#undef cuGraphKernelNodeGetParams
#undef cuGraphAddKernelNode
#undef cuGraphAddDependencies
#undef cuGraphUpload
#undef cuGraphLaunch
