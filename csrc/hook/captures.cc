#include "csrc/hook/captures.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/hook/owner.h"
#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"
#include "csrc/layout/journal.h"
#include "csrc/layout/zones.h"

namespace foundry::hook {
namespace {

struct Capture {
  CUstream stream;
  uint32_t thread;  // of a per-thread stream, else 0
  CUcontext context;
};

struct Captures {
  std::mutex mutex;
  std::vector<Capture> running;
};

Captures& captures() {
  static Captures& instance = *new Captures;
  return instance;
}

// The handle that names the same stream in every spelling of a function.
CUstream named(const Row& row, CUstream stream) {
  if (stream != nullptr) return stream;
  return row.stream == DefaultStream::per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

uint32_t thread_of(CUstream stream) { return stream == CU_STREAM_PER_THREAD ? layout::thread_id() : 0; }

template <class Predicate>
void end_if(Predicate ends) {
  int ended = 0;
  {
    const std::lock_guard lock(captures().mutex);
    ended = static_cast<int>(std::erase_if(captures().running, ends));
  }
  layout::Zones* zones = zones_if_any();
  if (ended != 0 && zones != nullptr) zones->capture_delta(-ended);
}

}  // namespace

bool stream_captures(const Row& row, CUstream stream) noexcept {
  const driver::Driver* table = driver_table();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // An error: the legacy stream while another one captures, for example.
  return table == nullptr || table->cuStreamIsCapturing(named(row, stream), &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool capture_is_active(const Row& row, CUstream stream) noexcept {
  const driver::Driver* table = driver_table();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return table != nullptr && table->cuStreamIsCapturing(named(row, stream), &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

BeginningCapture::BeginningCapture(const Row& row, CUstream stream) noexcept : stream_(named(row, stream)) {
  if (!working()) return;
  contained("noting a stream capture", [&] {
    thread_ = thread_of(stream_);
    if (layout::Zones* zones = zones_made()) {
      zones->capture_delta(1);
      counted_ = true;
    }
  });
}

void BeginningCapture::done(CUresult result) noexcept {
  if (!counted_) return;
  contained("noting a stream capture", [&] {
    if (result != CUDA_SUCCESS) {
      zones_made()->capture_delta(-1);
      return;
    }
    CUcontext context = nullptr;
    if (const driver::Driver* table = driver_table()) table->cuCtxGetCurrent(&context);
    const std::lock_guard lock(captures().mutex);
    captures().running.push_back({stream_, thread_, context});
  });
}

void capture_ended(const Row& row, CUstream stream, CUresult result) noexcept {
  contained("noting the end of a stream capture", [&] {
    if (result != CUDA_SUCCESS && stream_captures(row, stream)) return;
    const CUstream name = named(row, stream);
    const uint32_t thread = thread_of(name);
    end_if([&](const Capture& one) { return one.stream == name && one.thread == thread; });
  });
}

void stream_gone(CUstream stream) noexcept {
  contained("noting the end of a stream", [&] { end_if([&](const Capture& one) { return one.stream == stream; }); });
}

void captures_of_context_gone(CUcontext context) noexcept {
  if (context == nullptr) return;
  contained("noting the end of a context", [&] { end_if([&](const Capture& one) { return one.context == context; }); });
}

}  // namespace foundry::hook
