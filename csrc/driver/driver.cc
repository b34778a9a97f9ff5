#include "csrc/driver/driver.h"

#include <dlfcn.h>

#include "csrc/base/text.h"

namespace foundry::driver {
namespace {

enum class Need { required, optional };

}  // namespace

Result<Driver> Driver::bind(const std::function<void*(const char*)>& resolve) {
  Driver driver;
#define FOUNDRY_BIND(name, symbol, type, need)                                                         \
  driver.name = reinterpret_cast<type>(resolve(#symbol));                                              \
  if (driver.name == nullptr && Need::need == Need::required) {                                        \
    return Error{ErrorKind::unsupported, 0,                                                            \
                 "the CUDA driver has no " #symbol "; Foundry needs a driver for CUDA 12.4 or later"}; \
  }
  FOUNDRY_DRIVER_ENTRY_POINTS(FOUNDRY_BIND)
#undef FOUNDRY_BIND
  return driver;
}

Result<Driver> Driver::open() {
  // RTLD_LOCAL: our handle must not make driver symbols visible to anybody else.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return Error{
        ErrorKind::unsupported, 0,
        format("no CUDA driver: libcuda.so.1 cannot be opened (%s)", reason != nullptr ? reason : "unknown reason")};
  }
  return bind([library](const char* symbol) { return dlsym(library, symbol); });
}

Error Driver::error(CUresult code, const char* call) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr)
    name = "unknown CUresult";
  if (cuGetErrorString == nullptr || cuGetErrorString(code, &text) != CUDA_SUCCESS || text == nullptr) text = "no text";
  const ErrorKind kind = code == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::out_of_memory : ErrorKind::driver;
  return Error{kind, static_cast<int>(code),
               format("%s failed: %s (%s, %d)", call, text, name, static_cast<int>(code))};
}

ScopedContext::ScopedContext(const Driver& driver, CUcontext context) : driver_(driver), status_(success()) {
  CUresult code = driver_.cuCtxGetCurrent(&previous_);
  if (code == CUDA_SUCCESS && previous_ != context) {
    code = driver_.cuCtxSetCurrent(context);
    changed_ = code == CUDA_SUCCESS;
  }
  if (code != CUDA_SUCCESS) status_ = driver_.error(code, "cuCtxSetCurrent");
}

ScopedContext::~ScopedContext() {
  if (changed_) driver_.cuCtxSetCurrent(previous_);
}

RelaxedCaptureMode::RelaxedCaptureMode(const Driver& driver) : driver_(driver) {
  active_ = driver_.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
}

RelaxedCaptureMode::~RelaxedCaptureMode() {
  if (active_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace foundry::driver
