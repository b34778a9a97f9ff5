// Checks that graph nodes share with the copy and memset calls.
#pragma once

#include "csrc/sim/cuda_api.h"

namespace foundry::sim {

CUresult check_copy(const CUDA_MEMCPY3D& params);
CUresult check_set(const CUDA_MEMSET_NODE_PARAMS& params);

}  // namespace foundry::sim
