// Stream entry points.
#include "csrc/sim/stream.h"

#include "csrc/sim/capture.h"
#include "csrc/sim/event.h"
#include "csrc/sim/lifetime.h"
#include "csrc/sim/work.h"

namespace foundry::sim {

std::shared_ptr<Stream> make_stream(Context& context, unsigned flags, int priority);  // stream_engine.cc
void retire_stream(Stream& stream);

HandleTable<Stream, CUstream, Kind::kStream>& streams() {
  static auto* table = new HandleTable<Stream, CUstream, Kind::kStream>;
  return *table;
}

CUresult find_stream(CUstream handle, std::shared_ptr<Stream>* stream) {
  bool per_thread = handle == CU_STREAM_PER_THREAD || (handle == nullptr && Call::current()->per_thread_default());
  if (handle == nullptr || handle == CU_STREAM_LEGACY || per_thread) {
    Context* context;
    SIM_TRY(current_context(&context));
    if (!per_thread) {
      *stream = context->legacy;
      return CUDA_SUCCESS;
    }
    auto& mine = context->per_thread[std::this_thread::get_id()];
    if (mine == nullptr) mine = make_default_stream(*context, true);
    *stream = mine;
    return CUDA_SUCCESS;
  }
  *stream = streams().find(handle);
  if (*stream == nullptr) {
    return fail(CUDA_ERROR_INVALID_HANDLE, "stream %p was %s", static_cast<void*>(handle), streams().why_not(handle));
  }
  return (*stream)->context->sticky;
}

void release_streams_of(Context& context) {
  std::vector<CUstream> mine;
  for (const auto& [value, stream] : streams().all()) {
    if (stream->context == &context) mine.push_back(stream->handle);
  }
  for (CUstream handle : mine) {
    auto stream = streams().remove(handle);
    leave_capture(*stream);
    retire_stream(*stream);
  }
  if (context.legacy != nullptr) retire_stream(*context.legacy);
  for (auto& [thread, stream] : context.per_thread) {
    leave_capture(*stream);
    retire_stream(*stream);
  }
}

static CUresult create(CUstream* out, unsigned flags, int priority) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (out == nullptr || (flags & ~CU_STREAM_NON_BLOCKING) != 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "stream flags 0x%x", flags);
  }
  priority = std::min(std::max(priority, kGreatestPriority), kLeastPriority);
  *out = make_stream(*context, flags, priority)->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuStreamCreate, (CUstream * out, unsigned flags), (out, flags)) { return create(out, flags, kLeastPriority); }
SIM_API(cuStreamCreateWithPriority, (CUstream * out, unsigned flags, int priority), (out, flags, priority)) {
  return create(out, flags, priority);
}

// Queued work still runs, as with the real driver.
SIM_API(cuStreamDestroy_v2, (CUstream handle), (handle)) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    return fail(CUDA_ERROR_INVALID_HANDLE, "a default stream cannot be destroyed");
  }
  auto stream = streams().remove(handle);
  if (stream == nullptr) {
    return fail(CUDA_ERROR_INVALID_HANDLE, "stream %p was %s", static_cast<void*>(handle), streams().why_not(handle));
  }
  leave_capture(*stream);
  // Its last operation must still hold up the legacy stream and cuCtxSynchronize.
  if (!is_done(stream->tail)) {
    enqueue(*stream->context->legacy, nullptr, {stream->tail});
  }
  retire_stream(*stream);
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamGetId, (CUstream handle, unsigned long long* id), (handle, id)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id;
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamGetPriority, (CUstream handle, int* priority), (handle, priority)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamGetFlags, (CUstream handle, unsigned* flags), (handle, flags)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamGetDevice, (CUstream handle, CUdevice* device), (handle, device)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context->device->ordinal;
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamGetCtx, (CUstream handle, CUcontext* context), (handle, context)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->context->handle;
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamGetCtx_v2, (CUstream handle, CUcontext* context, CUgreenCtx* green), (handle, context, green)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->context->handle;
  *green = nullptr;
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamQuery, (CUstream handle), (handle)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  SIM_TRY(refuse_capturing(*stream, "cuStreamQuery"));
  if (!is_done(stream->tail)) return CUDA_ERROR_NOT_READY;
  return stream->context->sticky;
}

SIM_API_PTSZ(cuStreamSynchronize, (CUstream handle), (handle)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  SIM_TRY(refuse_capturing(*stream, "cuStreamSynchronize"));
  if (stream->legacy) {  // waits for all blocking streams as well
    SIM_TRY(check_legacy(*stream));
    wait_for(enqueue(*stream, nullptr));
  } else {
    wait_for(stream->tail);
  }
  return stream->context->sticky;
}

SIM_API_PTSZ(cuStreamWaitEvent, (CUstream handle, CUevent event_handle, unsigned flags),
             (handle, event_handle, flags)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  std::shared_ptr<Event> event;
  SIM_TRY(find_event(event_handle, &event));
  if ((flags & ~CU_EVENT_WAIT_EXTERNAL) != 0) return fail(CUDA_ERROR_INVALID_VALUE, "flags 0x%x", flags);
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
    if (stream->capture == nullptr) {
      return fail(CUDA_ERROR_INVALID_VALUE, "CU_EVENT_WAIT_EXTERNAL is for streams that are being captured");
    }
    return submit(*stream, EventWaitWork{event});
  }
  if (stream->capture != nullptr || event->capture_id != 0) return capture_wait(*stream, *event);
  SIM_TRY(check_legacy(*stream));
  if (event->completion != nullptr) enqueue(*stream, nullptr, {event->completion});
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuLaunchHostFunc, (CUstream handle, CUhostFn function, void* data), (handle, function, data)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (function == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null function");
  return submit(*stream, HostWork{function, data});
}

SIM_API_PTSZ(cuStreamAddCallback, (CUstream handle, CUstreamCallback callback, void* data, unsigned flags),
             (handle, callback, data, flags)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (callback == nullptr || flags != 0) return fail(CUDA_ERROR_INVALID_VALUE, "null callback or flags");
  SIM_TRY(refuse_capturing(*stream, "cuStreamAddCallback"));
  SIM_TRY(check_legacy(*stream));
  enqueue(*stream, [callback, handle, data, context = stream->context] {
    in_host_function() = true;
    callback(handle, context->sticky, data);
    in_host_function() = false;
  });
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamAttachMemAsync, (CUstream handle, CUdeviceptr address, size_t length, unsigned flags),
             (handle, address, length, flags)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  SIM_TRY(refuse_capturing(*stream, "cuStreamAttachMemAsync"));
  return CUDA_SUCCESS;  // managed memory is coherent here
}

static bool stream_attribute(CUstreamAttrID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return true;
    default:
      return false;
  }
}

SIM_API_PTSZ(cuStreamCopyAttributes, (CUstream to, CUstream from), (to, from)) {
  std::shared_ptr<Stream> target, source;
  SIM_TRY(find_stream(to, &target));
  SIM_TRY(find_stream(from, &source));
  target->attributes = source->attributes;
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamGetAttribute, (CUstream handle, CUstreamAttrID id, CUstreamAttrValue* value),
             (handle, id, value)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (value == nullptr || !stream_attribute(id)) return fail(CUDA_ERROR_INVALID_VALUE, "stream attribute %d", id);
  auto it = stream->attributes.find(id);
  *value = it != stream->attributes.end() ? it->second : default_attribute(id);
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamSetAttribute, (CUstream handle, CUstreamAttrID id, const CUstreamAttrValue* value),
             (handle, id, value)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (value == nullptr || !stream_attribute(id) || id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    return fail(CUDA_ERROR_INVALID_VALUE, "stream attribute %d", id);
  }
  stream->attributes[id] = *value;
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
