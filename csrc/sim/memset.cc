// Memsets. Every form becomes one CUDA_MEMSET_NODE_PARAMS, which a stream runs or a capture records.
#include <algorithm>
#include <cstring>
#include <vector>

#include "csrc/sim/capture.h"
#include "csrc/sim/copy.h"
#include "csrc/sim/memory.h"
#include "csrc/sim/stream.h"
#include "csrc/sim/work.h"

namespace foundry::sim {
namespace {

CUresult set_memory(const CUDA_MEMSET_NODE_PARAMS& params, CUstream handle, bool synchronous) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (synchronous) {
    SIM_TRY(refuse_capturing(*stream, "a synchronous memset"));
    SIM_TRY(forbid_in_capture("a synchronous memset"));
  }
  SIM_TRY(check_set(params));
  if (params.width == 0 || params.height == 0) return CUDA_SUCCESS;
  SIM_TRY(submit(*stream, SetWork{params, stream->context->handle}));
  if (!synchronous) return CUDA_SUCCESS;
  wait_for(stream->tail);
  return stream->context->sticky;
}

CUresult set_rows(CUdeviceptr to, std::size_t pitch, unsigned value, unsigned element, std::size_t width,
                  std::size_t height, CUstream stream, bool synchronous) {
  CUDA_MEMSET_NODE_PARAMS params = {};
  params.dst = to;
  params.pitch = pitch;
  params.value = value;
  params.elementSize = element;
  params.width = width;
  params.height = height;
  return set_memory(params, stream, synchronous);
}

}  // namespace

CUresult check_set(const CUDA_MEMSET_NODE_PARAMS& p) {
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4) {
    return fail(CUDA_ERROR_INVALID_VALUE, "elements of %u bytes", p.elementSize);
  }
  if (p.dst % p.elementSize != 0 || (p.height > 1 && p.pitch % p.elementSize != 0)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx or the pitch is not aligned to %u bytes", p.dst, p.elementSize);
  }
  if (p.width == 0 || p.height == 0) return CUDA_SUCCESS;
  std::size_t row = p.width * p.elementSize;
  if (p.height > 1 && p.pitch < row) {
    return fail(CUDA_ERROR_INVALID_VALUE, "a pitch of %zu bytes for rows of %zu", p.pitch, row);
  }
  return check_device_range(p.dst, (p.height - 1) * p.pitch + row, Access::kWrite);
}

CUresult run_set(const SetWork& set) {
  const CUDA_MEMSET_NODE_PARAMS& p = set.params;
  {
    std::lock_guard lock(driver_mutex());
    SIM_TRY(check_set(p));
  }
  // In pieces through copy_bytes, so that memory that has gone meanwhile is an error and not a fault.
  std::size_t row = p.width * p.elementSize;
  std::vector<char> pattern(std::min(row, std::size_t{1} << 20));
  for (std::size_t i = 0; i < pattern.size(); i += p.elementSize) std::memcpy(&pattern[i], &p.value, p.elementSize);
  for (std::size_t y = 0; y < p.height; ++y) {
    for (std::size_t x = 0; x < row; x += pattern.size()) {
      auto* to = reinterpret_cast<void*>(p.dst + y * p.pitch + x);
      if (!copy_bytes(to, pattern.data(), std::min(pattern.size(), row - x))) {
        return fail(CUDA_ERROR_ILLEGAL_ADDRESS, "a memset of %zu bytes at 0x%llx cannot reach its memory", row, p.dst);
      }
    }
  }
  return CUDA_SUCCESS;
}

SIM_API_PTDS(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count), (to, value, count)) {
  return set_rows(to, 0, value, 1, count, 1, nullptr, true);
}
SIM_API_PTDS(cuMemsetD16_v2, (CUdeviceptr to, unsigned short value, size_t count), (to, value, count)) {
  return set_rows(to, 0, value, 2, count, 1, nullptr, true);
}
SIM_API_PTDS(cuMemsetD32_v2, (CUdeviceptr to, unsigned value, size_t count), (to, value, count)) {
  return set_rows(to, 0, value, 4, count, 1, nullptr, true);
}
SIM_API_PTDS(cuMemsetD2D8_v2, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
             (to, pitch, value, width, height)) {
  return set_rows(to, pitch, value, 1, width, height, nullptr, true);
}
SIM_API_PTDS(cuMemsetD2D16_v2, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
             (to, pitch, value, width, height)) {
  return set_rows(to, pitch, value, 2, width, height, nullptr, true);
}
SIM_API_PTDS(cuMemsetD2D32_v2, (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height),
             (to, pitch, value, width, height)) {
  return set_rows(to, pitch, value, 4, width, height, nullptr, true);
}
SIM_API_PTSZ(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
             (to, value, count, stream)) {
  return set_rows(to, 0, value, 1, count, 1, stream, false);
}
SIM_API_PTSZ(cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
             (to, value, count, stream)) {
  return set_rows(to, 0, value, 2, count, 1, stream, false);
}
SIM_API_PTSZ(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream),
             (to, value, count, stream)) {
  return set_rows(to, 0, value, 4, count, 1, stream, false);
}
SIM_API_PTSZ(cuMemsetD2D8Async,
             (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream),
             (to, pitch, value, width, height, stream)) {
  return set_rows(to, pitch, value, 1, width, height, stream, false);
}
SIM_API_PTSZ(cuMemsetD2D16Async,
             (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream),
             (to, pitch, value, width, height, stream)) {
  return set_rows(to, pitch, value, 2, width, height, stream, false);
}
SIM_API_PTSZ(cuMemsetD2D32Async,
             (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream),
             (to, pitch, value, width, height, stream)) {
  return set_rows(to, pitch, value, 4, width, height, stream, false);
}

}  // namespace foundry::sim
