// Stream captures in progress: freed zone memory stays mapped until none runs.
#pragma once

#include "csrc/hook/cuda_api.h"
#include "csrc/hook/interposed.h"

namespace foundry::hook {

// Whether the stream captures now, or that cannot be said. The row tells what the null stream means.
bool stream_captures(const Row& row, CUstream stream) noexcept;
// Whether it is certain that the stream captures, and that the capture is valid so far.
bool capture_is_active(const Row& row, CUstream stream) noexcept;

// Around cuStreamBeginCapture: frees are put off before the capture begins, and no longer if it did not begin.
class BeginningCapture {
 public:
  BeginningCapture(const Row& row, CUstream stream) noexcept;
  void done(CUresult result) noexcept;

 private:
  CUstream stream_;
  uint32_t thread_ = 0;
  bool counted_ = false;
};

// After cuStreamEndCapture; a capture that goes on in spite of an error still counts.
void capture_ended(const Row& row, CUstream stream, CUresult result) noexcept;
void stream_gone(CUstream stream) noexcept;
void captures_of_context_gone(CUcontext context) noexcept;

}  // namespace foundry::hook
