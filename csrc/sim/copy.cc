// Copies. Every form becomes one CUDA_MEMCPY3D, which a stream runs or a capture records.
#include <algorithm>
#include <cstring>

#include "csrc/sim/capture.h"
#include "csrc/sim/copy.h"
#include "csrc/sim/memory.h"
#include "csrc/sim/stream.h"
#include "csrc/sim/work.h"

namespace foundry::sim {
namespace {

struct Side {
  std::uintptr_t start = 0;  // of the first byte
  std::size_t pitch = 0, slice = 0;
  bool pageable = false;
};

struct Extent {
  std::size_t width, height, depth;
  bool empty() const { return width == 0 || height == 0 || depth == 0; }
  std::size_t span(const Side& side) const {  // first to last byte
    return (depth - 1) * side.slice + (height - 1) * side.pitch + width;
  }
};

CUresult resolve(CUmemorytype type, std::uintptr_t host, CUdeviceptr device, std::size_t x, std::size_t y,
                 std::size_t z, std::size_t pitch, std::size_t rows, const Extent& extent, Access access, Side* side) {
  std::uintptr_t base;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      base = host;
      break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      base = device;
      break;
    case CU_MEMORYTYPE_ARRAY:
      return fail(CUDA_ERROR_NOT_SUPPORTED, "arrays are not simulated");
    default:
      return fail(CUDA_ERROR_INVALID_VALUE, "memory type %d", static_cast<int>(type));
  }
  if (extent.height > 1 || extent.depth > 1) {
    if (pitch < x + extent.width) {
      return fail(CUDA_ERROR_INVALID_VALUE, "a pitch of %zu bytes for rows of %zu", pitch, x + extent.width);
    }
    if (extent.depth > 1 && rows < y + extent.height) {
      return fail(CUDA_ERROR_INVALID_VALUE, "slices of %zu rows, %zu are copied", rows, y + extent.height);
    }
  }
  side->pitch = pitch;
  side->slice = pitch * rows;
  side->start = base + z * side->slice + y * side->pitch + x;
  if (extent.empty()) return CUDA_SUCCESS;
  Range* range = find_range(side->start);
  side->pageable = range == nullptr;
  if (type == CU_MEMORYTYPE_HOST) {
    if (range != nullptr && !range->host() && range->kind != MemoryKind::kManaged) {
      return fail(CUDA_ERROR_INVALID_VALUE, "0x%zx is device memory, given as host memory", side->start);
    }
    return range == nullptr ? CUDA_SUCCESS : check_device_range(side->start, extent.span(*side), access);
  }
  if (type == CU_MEMORYTYPE_UNIFIED && range == nullptr) return CUDA_SUCCESS;
  return check_device_range(side->start, extent.span(*side), access);
}

CUresult resolve_both(const CUDA_MEMCPY3D& p, Extent* extent, Side* from, Side* to) {
  *extent = {p.WidthInBytes, p.Height, p.Depth};
  SIM_TRY(resolve(p.srcMemoryType, reinterpret_cast<std::uintptr_t>(p.srcHost), p.srcDevice, p.srcXInBytes, p.srcY,
                  p.srcZ, p.srcPitch, p.srcHeight, *extent, Access::kRead, from));
  return resolve(p.dstMemoryType, reinterpret_cast<std::uintptr_t>(p.dstHost), p.dstDevice, p.dstXInBytes, p.dstY,
                 p.dstZ, p.dstPitch, p.dstHeight, *extent, Access::kWrite, to);
}

bool copy_rows(const Extent& extent, const Side& from, const Side& to) {
  for (std::size_t z = 0; z < extent.depth; ++z) {
    for (std::size_t y = 0; y < extent.height; ++y) {
      auto* target = reinterpret_cast<void*>(to.start + z * to.slice + y * to.pitch);
      auto* source = reinterpret_cast<const void*>(from.start + z * from.slice + y * from.pitch);
      if (!copy_bytes(target, source, extent.width)) return false;
    }
  }
  return true;
}

// Reads a pageable source at the time of the call, as the real driver does.
CUresult stage(const Extent& extent, Side from, CopyWork* work) {
  auto bytes = std::make_shared<std::vector<char>>(extent.width * extent.height * extent.depth);
  Side to;
  to.start = reinterpret_cast<std::uintptr_t>(bytes->data());
  to.pitch = extent.width;
  to.slice = extent.width * extent.height;
  bool copied;
  {
    Unlocked unlocked;
    copied = copy_rows(extent, from, to);
  }
  if (!copied) return fail(CUDA_ERROR_INVALID_VALUE, "the host memory at 0x%zx cannot be read", from.start);
  CUDA_MEMCPY3D& p = work->params;
  p.srcMemoryType = CU_MEMORYTYPE_HOST;
  p.srcHost = bytes->data();
  p.srcXInBytes = p.srcY = p.srcZ = 0;
  p.srcPitch = extent.width;
  p.srcHeight = extent.height;
  work->staged = std::move(bytes);
  return CUDA_SUCCESS;
}

CUresult copy_async(CUDA_MEMCPY3D params, CUstream handle, bool synchronous) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (synchronous) {
    SIM_TRY(refuse_capturing(*stream, "a synchronous copy"));
    SIM_TRY(check_legacy(*stream));
    SIM_TRY(forbid_in_capture("a synchronous copy"));
  }
  Extent extent;
  Side from, to;
  SIM_TRY(resolve_both(params, &extent, &from, &to));
  if (extent.empty()) return CUDA_SUCCESS;
  CopyWork work;
  work.params = params;
  work.context = stream->context->handle;
  if (stream->capture != nullptr) return submit(*stream, std::move(work));
  if (from.pageable && !synchronous) SIM_TRY(stage(extent, from, &work));
  if (!synchronous && !to.pageable) return submit(*stream, std::move(work));
  // The caller waits, so an address that cannot be used is this call's error and does not break the context.
  SIM_TRY(check_legacy(*stream));
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  wait_for(enqueue(*stream, [work = std::move(work), result] { *result = run_copy(work); }));
  if (*result != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  return stream->context->sticky;
}

CUDA_MEMCPY3D linear(CUmemorytype to_type, std::uintptr_t to, CUmemorytype from_type, std::uintptr_t from,
                     std::size_t bytes) {
  CUDA_MEMCPY3D p = {};
  p.srcMemoryType = from_type;
  p.dstMemoryType = to_type;
  if (from_type == CU_MEMORYTYPE_HOST) {
    p.srcHost = reinterpret_cast<const void*>(from);
  } else {
    p.srcDevice = from;
  }
  if (to_type == CU_MEMORYTYPE_HOST) {
    p.dstHost = reinterpret_cast<void*>(to);
  } else {
    p.dstDevice = to;
  }
  p.WidthInBytes = bytes;
  p.Height = p.Depth = 1;
  return p;
}

CUmemorytype type_of(std::uintptr_t address) {
  Range* range = find_range(address);
  return range == nullptr || range->host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

CUDA_MEMCPY3D unified(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return linear(type_of(to), to, type_of(from), from, bytes);
}

CUDA_MEMCPY3D from_host(CUdeviceptr to, const void* from, std::size_t bytes) {
  return linear(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_HOST, reinterpret_cast<std::uintptr_t>(from), bytes);
}

CUDA_MEMCPY3D to_host(void* to, CUdeviceptr from, std::size_t bytes) {
  return linear(CU_MEMORYTYPE_HOST, reinterpret_cast<std::uintptr_t>(to), CU_MEMORYTYPE_DEVICE, from, bytes);
}

CUDA_MEMCPY3D on_device(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return linear(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_DEVICE, from, bytes);
}

CUresult copy_2d(const CUDA_MEMCPY2D* q, CUstream stream, bool synchronous) {
  if (q == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D p = {};
  p.srcXInBytes = q->srcXInBytes;
  p.srcY = q->srcY;
  p.srcMemoryType = q->srcMemoryType;
  p.srcHost = q->srcHost;
  p.srcDevice = q->srcDevice;
  p.srcArray = q->srcArray;
  p.srcPitch = q->srcPitch;
  p.dstXInBytes = q->dstXInBytes;
  p.dstY = q->dstY;
  p.dstMemoryType = q->dstMemoryType;
  p.dstHost = q->dstHost;
  p.dstDevice = q->dstDevice;
  p.dstArray = q->dstArray;
  p.dstPitch = q->dstPitch;
  p.WidthInBytes = q->WidthInBytes;
  p.Height = q->Height;
  p.Depth = 1;
  return copy_async(p, stream, synchronous);
}

}  // namespace

CUresult check_copy(const CUDA_MEMCPY3D& params) {
  Extent extent;
  Side from, to;
  return resolve_both(params, &extent, &from, &to);
}

CUresult run_copy(const CopyWork& copy) {
  Extent extent;
  Side from, to;
  {
    std::lock_guard lock(driver_mutex());
    SIM_TRY(resolve_both(copy.params, &extent, &from, &to));
  }
  if (copy_rows(extent, from, to)) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_ILLEGAL_ADDRESS, "a copy of %zu bytes from 0x%zx to 0x%zx cannot reach its memory",
              extent.width, from.start, to.start);
}

SIM_API_PTDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes)) {
  return copy_async(unified(to, from, bytes), nullptr, true);
}
SIM_API_PTDS(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes), (to, from, bytes)) {
  return copy_async(from_host(to, from, bytes), nullptr, true);
}
SIM_API_PTDS(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes), (to, from, bytes)) {
  return copy_async(to_host(to, from, bytes), nullptr, true);
}
SIM_API_PTDS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes)) {
  return copy_async(on_device(to, from, bytes), nullptr, true);
}
SIM_API_PTDS(cuMemcpyPeer,
             (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
             (to, to_context, from, from_context, bytes)) {
  return copy_async(on_device(to, from, bytes), nullptr, true);
}
SIM_API_PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* params), (params)) { return copy_2d(params, nullptr, true); }
SIM_API_PTDS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* params), (params)) { return copy_2d(params, nullptr, true); }
SIM_API_PTDS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D* params), (params)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_async(*params, nullptr, true);
}

SIM_API_PTSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
             (to, from, bytes, stream)) {
  return copy_async(unified(to, from, bytes), stream, false);
}
SIM_API_PTSZ(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
             (to, from, bytes, stream)) {
  return copy_async(from_host(to, from, bytes), stream, false);
}
SIM_API_PTSZ(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
             (to, from, bytes, stream)) {
  return copy_async(to_host(to, from, bytes), stream, false);
}
SIM_API_PTSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
             (to, from, bytes, stream)) {
  return copy_async(on_device(to, from, bytes), stream, false);
}
SIM_API_PTSZ(cuMemcpyPeerAsync,
             (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
              CUstream stream),
             (to, to_context, from, from_context, bytes, stream)) {
  return copy_async(on_device(to, from, bytes), stream, false);
}
SIM_API_PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* params, CUstream stream), (params, stream)) {
  return copy_2d(params, stream, false);
}
SIM_API_PTSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* params, CUstream stream), (params, stream)) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_async(*params, stream, false);
}

}  // namespace foundry::sim
