// cuda.h with every real symbol declared: old spellings, _v2 and later, and the _ptsz/_ptds ones, none of them renamed.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>
