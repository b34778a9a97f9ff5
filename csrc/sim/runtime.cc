// The call guard, the log, and the switches that come from the environment.
#include "csrc/sim/runtime.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "csrc/sim/extension.h"
#include "csrc/sim/faults.h"

namespace foundry::sim {
namespace {

// Nothing here is destroyed at exit: worker threads and late callers may outlive static destructors.
struct Log {
  std::mutex mutex;
  std::string text;
  std::FILE* file = nullptr;
};

Log& log() {
  static Log* instance = [] {
    auto* made = new Log;
    if (const char* path = std::getenv("FOUNDRY_SIM_LOG"); path != nullptr && *path != 0)
      made->file = std::fopen(path, "ae");
    return made;
  }();
  return *instance;
}

constexpr std::size_t kLogLimit = std::size_t{8} << 20;

void append(const std::string& line) {
  Log& state = log();
  std::lock_guard lock(state.mutex);
  if (state.text.size() < kLogLimit) state.text += line + "\n";
  if (state.file != nullptr) {
    std::fprintf(state.file, "%s\n", line.c_str());
    std::fflush(state.file);
  }
}

std::string format_text(const char* format, va_list arguments) {
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  return text;
}

std::atomic<bool> g_initialized{false};
std::atomic<bool> g_forked{false};
std::atomic<bool> g_trap_edge_data{false}, g_trap_exec_update_attrs{false};
thread_local Call* t_call = nullptr;

bool set_traps(const char* spec) {
  g_trap_edge_data = g_trap_exec_update_attrs = false;
  bool ok = true;
  std::string text = spec == nullptr ? "" : spec;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find(',', at), text.size());
    std::string word = text.substr(at, end - at);
    if (word == "edge-data") {
      g_trap_edge_data = true;
    } else if (word == "exec-update-attrs") {
      g_trap_exec_update_attrs = true;
    } else {
      ok = false;
    }
    at = end + 1;
  }
  return ok;
}

bool needs_no_init(Fn fn) {
  switch (fn) {
    case Fn::cuInit:
    case Fn::cuDriverGetVersion:
    case Fn::cuGetErrorName:
    case Fn::cuGetErrorString:
    case Fn::cuGetProcAddress:
    case Fn::cuGetProcAddress_v2:
    case Fn::cuGetExportTable:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::mutex& driver_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

bool& in_host_function() {
  thread_local bool value = false;
  return value;
}

bool initialized() { return g_initialized; }

void set_initialized() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (const char* spec = std::getenv("FOUNDRY_SIM_TRAPS"); spec != nullptr && !set_traps(spec)) {
      note("FOUNDRY_SIM_TRAPS has words that are not understood: %s", spec);
    }
    // As with the real driver, a child inherits no usable driver: its worker threads are gone.
    pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
  });
  g_initialized = true;
}

bool strict() {
  static const bool value = [] {
    const char* text = std::getenv("FOUNDRY_SIM_STRICT");
    return text == nullptr || std::strcmp(text, "0") != 0;
  }();
  return value;
}

bool trap_edge_data() { return g_trap_edge_data; }
bool trap_exec_update_attrs() { return g_trap_exec_update_attrs; }

Call::Call(Fn fn, bool per_thread_default) : fn_(fn), per_thread_default_(per_thread_default), outer_(t_call) {
  t_call = this;
  Injected injected = count_call(fn, per_thread_default);
  if (g_forked && (fn == Fn::cuInit || !needs_no_init(fn))) {
    refusal_ = CUDA_ERROR_NOT_INITIALIZED;
    return;  // the lock may have been held by a thread that does not exist here
  }
  if (injected.delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(injected.delay_ms));
  if (injected.error != CUDA_SUCCESS) {
    refusal_ = fail(injected.error, "fault on demand");
    return;
  }
  if (needs_no_init(fn)) {
    if (fn == Fn::cuInit) lock_ = std::unique_lock(driver_mutex());
    return;
  }
  if (strict() && in_host_function()) {
    refusal_ = fail(CUDA_ERROR_NOT_PERMITTED, "driver call from a host function");
    return;
  }
  if (!g_initialized) {
    refusal_ = fail(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
    return;
  }
  lock_ = std::unique_lock(driver_mutex());
}

Call::~Call() { t_call = outer_; }

Call* Call::current() { return t_call; }

Unlocked::Unlocked() : call_(t_call) {
  if (call_ != nullptr && call_->lock_.owns_lock()) {
    call_->lock_.unlock();
  } else {
    call_ = nullptr;
  }
}

Unlocked::~Unlocked() {
  if (call_ != nullptr) call_->lock_.lock();
}

CUresult fail(CUresult code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = format_text(format, arguments);
  va_end(arguments);
  const char* name = error_name(code);
  std::string where = "worker";
  if (t_call != nullptr) {
    const FnInfo& f = info(t_call->fn());
    where = f.symbol;
    if (t_call->per_thread_default()) where = where + "_" + f.suffix;
  }
  append(where + ": " + (name != nullptr ? name : std::to_string(code)) + ": " + text);
  return code;
}

void note(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  append("note: " + format_text(format, arguments));
  va_end(arguments);
}

const char* error_name(CUresult code) {
  switch (code) {
#define E(name, text) \
  case name:          \
    return #name;
#include "csrc/sim/errors.inc"
#undef E
    default:
      return nullptr;
  }
}

static const char* error_text(CUresult code) {
  switch (code) {
#define E(name, text) \
  case name:          \
    return text;
#include "csrc/sim/errors.inc"
#undef E
    default:
      return nullptr;
  }
}

SIM_API(cuGetErrorName, (CUresult error, const char** text), (error, text)) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error_name(error);
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGetErrorString, (CUresult error, const char** text), (error, text)) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error_text(error);
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace foundry::sim

using namespace foundry::sim;

extern "C" __attribute__((visibility("default"))) size_t foundry_sim_log_text(char* buffer, size_t size) {
  std::lock_guard lock(log().mutex);
  const std::string& text = log().text;
  if (buffer != nullptr && size > 0) {
    std::size_t bytes = std::min(text.size(), size - 1);
    std::memcpy(buffer, text.data(), bytes);
    buffer[bytes] = 0;
  }
  return text.size() + 1;
}

extern "C" __attribute__((visibility("default"))) void foundry_sim_log_clear(void) {
  std::lock_guard lock(log().mutex);
  log().text.clear();
}

extern "C" __attribute__((visibility("default"))) int foundry_sim_set_traps(const char* spec) {
  return set_traps(spec) ? 0 : -1;
}
