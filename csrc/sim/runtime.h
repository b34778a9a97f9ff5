// What every entry point goes through: the lock, counters, faults, and errors with text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "csrc/sim/cuda_api.h"

namespace foundry::sim {

enum class Fn : int {
#define F(base, symbol, since) symbol,
#define P(base, symbol, since, suffix) symbol,
#include "csrc/sim/api_table.inc"
#undef F
#undef P
  kCount
};

struct FnInfo {
  const char* base;
  const char* symbol;
  int since;
  const char* suffix;  // "ptsz", "ptds" or null
  void* entry;
  void* per_thread_entry;  // null without a suffix
};
const FnInfo& info(Fn fn);

// One driver call of this thread. Holds the driver's lock, which guards every object; only Unlocked gives it up.
class Call {
 public:
  Call(Fn fn, bool per_thread_default);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  CUresult refusal() const { return refusal_; }  // set: the call must return this without doing anything
  static Call* current();
  Fn fn() const { return fn_; }
  bool per_thread_default() const { return per_thread_default_; }

 private:
  friend class Unlocked;
  Fn fn_;
  bool per_thread_default_;
  CUresult refusal_ = CUDA_SUCCESS;
  Call* outer_;
  std::unique_lock<std::mutex> lock_;
};

// The driver's lock for code that runs outside a call (stream workers, extension functions).
std::mutex& driver_mutex();

// Gives up the current call's lock for its lifetime: for waiting, and for running a client's code.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();

 private:
  Call* call_;
};

// True on a thread that runs a client's host function: the driver API is not permitted there.
bool& in_host_function();

bool initialized();
void set_initialized();

// FOUNDRY_SIM_STRICT=0 permits what real drivers let pass although it is a mistake.
bool strict();

// Appends "symbol: CUDA_ERROR_X: text" to the log and returns the code.
[[gnu::format(printf, 2, 3)]] CUresult fail(CUresult code, const char* format, ...);
[[gnu::format(printf, 1, 2)]] void note(const char* format, ...);

const char* error_name(CUresult code);  // null when unknown

bool trap_edge_data();          // one bulk cuGraphAddDependencies applies the first edge's data to all
bool trap_exec_update_attrs();  // cuGraphExecUpdate does not carry attributes

template <class Body>
CUresult guarded(Fn fn, bool per_thread_default, Body body) {
  CUresult result;
  try {
    Call call(fn, per_thread_default);
    if (call.refusal() != CUDA_SUCCESS) return call.refusal();
    result = body();
  } catch (const std::bad_alloc&) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    result = CUDA_ERROR_UNKNOWN;
  }
  return result;
}

}  // namespace foundry::sim

#define FOUNDRY_SIM_ENTRY_(function, symbol, per_thread, params, args)                          \
  extern "C" __attribute__((visibility("hidden"))) CUresult foundry_sim_entry_##symbol params { \
    return ::foundry::sim::guarded(::foundry::sim::Fn::function, per_thread,                    \
                                   [&]() -> CUresult { return impl_##function args; });         \
  }                                                                                             \
  extern "C" __attribute__((visibility("default"), alias("foundry_sim_entry_" #symbol))) CUresult symbol params;

// Defines the entry point of one table row: SIM_API(cuInit, (unsigned int flags), (flags)) { body under the lock }.
// cuGetProcAddress hands out the hidden name, so that a preloaded interposer of the same symbol cannot get in between.
#define SIM_API(function, params, args)                       \
  static CUresult impl_##function params;                     \
  FOUNDRY_SIM_ENTRY_(function, function, false, params, args) \
  static CUresult impl_##function params

#define SIM_API_PTSZ(function, params, args)                        \
  static CUresult impl_##function params;                           \
  FOUNDRY_SIM_ENTRY_(function, function, false, params, args)       \
  FOUNDRY_SIM_ENTRY_(function, function##_ptsz, true, params, args) \
  static CUresult impl_##function params

#define SIM_API_PTDS(function, params, args)                        \
  static CUresult impl_##function params;                           \
  FOUNDRY_SIM_ENTRY_(function, function, false, params, args)       \
  FOUNDRY_SIM_ENTRY_(function, function##_ptds, true, params, args) \
  static CUresult impl_##function params

#define SIM_TRY(expression)                                                          \
  do {                                                                               \
    if (CUresult sim_try_ = (expression); sim_try_ != CUDA_SUCCESS) return sim_try_; \
  } while (0)
