// Stream captures and contexts: what begins and ends.
#include "csrc/hook/handlers.h"

#include <string_view>

#include "csrc/base/text.h"
#include "csrc/driver/driver.h"
#include "csrc/hook/captures.h"
#include "csrc/hook/image_registry.h"
#include "csrc/hook/note.h"
#include "csrc/hook/owner.h"
#include "csrc/hook/placement.h"
#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"
#include "csrc/layout/zones.h"

namespace foundry::hook {
namespace {

// The primary context where it is active, else null.
CUcontext active_primary(CUdevice device) noexcept {
  const driver::Driver* table = driver_table();
  unsigned int flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (table == nullptr || table->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      table->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
    return nullptr;
  }
  table->cuDevicePrimaryCtxRelease(device);
  return context;
}

bool is_active(CUdevice device) noexcept {
  const driver::Driver* table = driver_table();
  unsigned int flags = 0;
  int active = 0;
  return table == nullptr || table->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}

}  // namespace

CUresult begin_capture_v1(const Row& row, PFN_cuStreamBeginCapture_v10000 next, CUstream stream) {
  BeginningCapture beginning(row, stream);
  const CUresult result = next(stream);
  beginning.done(result);
  return result;
}

CUresult begin_capture(const Row& row, PFN_cuStreamBeginCapture_v10010 next, CUstream stream,
                       CUstreamCaptureMode mode) {
  BeginningCapture beginning(row, stream);
  const CUresult result = next(stream, mode);
  beginning.done(result);
  return result;
}

CUresult begin_capture_to_graph(const Row& row, PFN_cuStreamBeginCaptureToGraph_v12030 next, CUstream stream,
                                CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                                size_t count, CUstreamCaptureMode mode) {
  BeginningCapture beginning(row, stream);
  const CUresult result = next(stream, graph, dependencies, edges, count, mode);
  beginning.done(result);
  return result;
}

CUresult end_capture(const Row& row, PFN_cuStreamEndCapture_v10000 next, CUstream stream, CUgraph* graph) {
  const CUresult result = next(stream, graph);
  capture_ended(row, stream, result);
  return result;
}

CUresult stream_destroy(const Row&, PFN_cuStreamDestroy_v4000 next, CUstream stream) {
  const CUresult result = next(stream);
  if (result == CUDA_SUCCESS) stream_gone(stream);
  return result;
}

CUresult ctx_destroy(const Row& row, PFN_cuCtxDestroy_v4000 next, CUcontext context) {
  const CUresult result = next(context);
  if (result == CUDA_SUCCESS) {
    forget_context(context);
    captures_of_context_gone(context);
    note_state(row, reinterpret_cast<uint64_t>(context), 0);
  }
  return result;
}

// Reset, or a release that may be the last one.
CUresult primary_ctx_end(const Row& row, PFN_cuDevicePrimaryCtxReset_v11000 next, CUdevice device) {
  if (!working()) return next(device);
  const CUcontext context = active_primary(device);
  const bool reset = row.base == std::string_view("cuDevicePrimaryCtxReset");
  const CUresult result = next(device);
  if (result != CUDA_SUCCESS) return result;
  note_state(row, reinterpret_cast<uint64_t>(context), static_cast<uint64_t>(device));
  if (context == nullptr || (!reset && is_active(device))) return result;
  forget_context(context);
  captures_of_context_gone(context);
  if (zones_if_any() != nullptr) {
    contained("noting the end of a context", [&] {
      diagnose(
          format("the primary context of device %d ended (%s): graphs captured before are gone, and later allocations "
                 "stay where the driver puts them",
                 device, row.symbol));
    });
    stop_ambient(device);
  }
  return result;
}

// The driver opens plain allocations of the peer to this device; memory in zones it does not.
CUresult ctx_enable_peer_access(const Row& row, PFN_cuCtxEnablePeerAccess_v4000 next, CUcontext peer,
                                unsigned int flags) {
  const CUresult result = next(peer, flags);
  if (result != CUDA_SUCCESS || !working()) return result;
  note_state(row, reinterpret_cast<uint64_t>(peer), flags);
  const driver::Driver* table = driver_table();
  CUdevice device = -1;
  if (table == nullptr) return result;
  contained("noting peer access", [&] {
    const driver::ScopedContext scope(*table, peer);
    if (!scope.status().ok() || table->cuCtxGetDevice(&device) != CUDA_SUCCESS) return;
    if (!may_place()) return;
    diagnose(
        format("another device was given access to memory of device %d: its later allocations outside phases stay "
               "where the driver puts them, and earlier ones in the zone are not accessible to the other device",
               device));
    stop_ambient(device);
  });
  return result;
}

}  // namespace foundry::hook
