// Memory pools of stream-ordered allocation.
#pragma once

#include <map>

#include "csrc/sim/context.h"

namespace foundry::sim {

struct Pool {
  CUmemoryPool handle = nullptr;
  Device* device = nullptr;
  CUmemPoolProps props = {};
  std::size_t used = 0, used_high = 0;
  cuuint64_t release_threshold = 0;
  std::map<int, int> switches;
  std::map<int, CUmemAccess_flags> access;
};

HandleTable<Pool, CUmemoryPool, Kind::kPool>& pools();

}  // namespace foundry::sim
