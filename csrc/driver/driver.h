// Run-time binding to the CUDA driver: a table of function pointers and errors as values.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <functional>
#include <string>

#include "csrc/base/result.h"
#include "csrc/driver/entry_points.h"

// cuda.h renames several functions by macro; the table's members carry the plain names.
#include "csrc/driver/undo_cuda_macros.h"

namespace foundry::driver {

struct Driver {
#define FOUNDRY_MEMBER(name, symbol, type, need) type name = nullptr;
  FOUNDRY_DRIVER_ENTRY_POINTS(FOUNDRY_MEMBER)
#undef FOUNDRY_MEMBER

  // Fills a table with `resolve(exported symbol)`. Fails with the first required symbol that is missing.
  static Result<Driver> bind(const std::function<void*(const char*)>& resolve);
  // Opens libcuda.so.1 and binds to it; cuInit is the caller's business. One sentence if there is no driver.
  static Result<Driver> open();

  // "cuMemCreate failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)".
  Error error(CUresult code, const char* call) const;
};

// Puts a context on the calling thread for a scope (worker threads, calls from foreign threads).
class ScopedContext {
 public:
  ScopedContext(const Driver& driver, CUcontext context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  const Status& status() const { return status_; }

 private:
  const Driver& driver_;
  CUcontext previous_ = nullptr;
  bool changed_ = false;
  Status status_;
};

// Relaxed stream-capture mode for a scope: mapping memory must not invalidate a capture that runs elsewhere.
class RelaxedCaptureMode {
 public:
  explicit RelaxedCaptureMode(const Driver& driver);
  ~RelaxedCaptureMode();
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool active_ = false;
};

}  // namespace foundry::driver

// FOUNDRY_CU(driver, cuMemMap, args...): calls and returns the driver's error from the enclosing function.
#define FOUNDRY_CU(drv, name, ...)                                                     \
  do {                                                                                 \
    const CUresult foundry_cu_code_ = (drv).name(__VA_ARGS__);                         \
    if (foundry_cu_code_ != CUDA_SUCCESS) return (drv).error(foundry_cu_code_, #name); \
  } while (false)
