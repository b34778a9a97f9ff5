// cuda.h with every historical signature and without the macros that rename functions. Include before anything that
// includes cuda.h.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>
#include <cudaTypedefs.h>

#ifdef cuMemAlloc
#error "cuda.h came in first with its renaming macros"
#endif
