// Contexts and the per-thread stack of them.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "csrc/sim/device.h"
#include "csrc/sim/handles.h"

namespace foundry::sim {

struct Stream;

struct Context {
  CUcontext handle = nullptr;
  Device* device = nullptr;
  bool primary = false;
  bool alive = true;  // a primary context keeps its handle when it is reset and retained again
  unsigned flags = 0;
  unsigned long long id = 0;
  std::array<std::size_t, CU_LIMIT_MAX> limits{};
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  std::set<CUcontext> peers;
  std::shared_ptr<Stream> legacy;
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
  std::atomic<CUresult> sticky{CUDA_SUCCESS};  // an asynchronous error: every later call returns it
};

HandleTable<Context, CUcontext, Kind::kContext>& contexts();

// The current context of this thread; an error with text when there is none, or it is destroyed or broken.
CUresult current_context(Context** context);
Context* current_context_or_null();

// Looks a handle up; null stands for the current context.
CUresult find_context(CUcontext handle, Context** context);

}  // namespace foundry::sim
