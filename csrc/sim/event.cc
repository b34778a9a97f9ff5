// Event entry points.
#include "csrc/sim/event.h"

#include "csrc/sim/capture.h"
#include "csrc/sim/lifetime.h"
#include "csrc/sim/work.h"

namespace foundry::sim {

HandleTable<Event, CUevent, Kind::kEvent>& events() {
  static auto* table = new HandleTable<Event, CUevent, Kind::kEvent>;
  return *table;
}

CUresult find_event(CUevent handle, std::shared_ptr<Event>* event) {
  *event = events().find(handle);
  if (*event != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_HANDLE, "event %p was %s", static_cast<void*>(handle), events().why_not(handle));
}

void release_events_of(Context& context) {
  std::vector<CUevent> mine;
  for (const auto& [value, event] : events().all()) {
    if (event->context == &context) mine.push_back(event->handle);
  }
  for (CUevent handle : mine) events().remove(handle);
}

static CUresult record(CUevent handle, CUstream stream_handle, unsigned flags) {
  std::shared_ptr<Event> event;
  SIM_TRY(find_event(handle, &event));
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(stream_handle, &stream));
  if (event->context != stream->context) {
    return fail(CUDA_ERROR_INVALID_HANDLE, "event and stream belong to different contexts");
  }
  if ((flags & ~CU_EVENT_RECORD_EXTERNAL) != 0) return fail(CUDA_ERROR_INVALID_VALUE, "flags 0x%x", flags);
  if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
    if (stream->capture == nullptr) {
      return fail(CUDA_ERROR_INVALID_VALUE, "CU_EVENT_RECORD_EXTERNAL is for streams that are being captured");
    }
    return submit(*stream, EventRecordWork{event});
  }
  if (stream->capture != nullptr) return capture_record(*stream, *event);
  SIM_TRY(check_legacy(*stream));
  event->capture_id = 0;
  event->captured.clear();
  event->completion = enqueue(*stream, nullptr);
  return CUDA_SUCCESS;
}

SIM_API(cuEventCreate, (CUevent * out, unsigned flags), (out, flags)) {
  Context* context;
  SIM_TRY(current_context(&context));
  constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (out == nullptr || (flags & ~known) != 0) return fail(CUDA_ERROR_INVALID_VALUE, "event flags 0x%x", flags);
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "an interprocess event needs CU_EVENT_DISABLE_TIMING");
  }
  auto event = std::make_shared<Event>();
  event->context = context;
  event->flags = flags;
  event->handle = *out = events().add(event);
  return CUDA_SUCCESS;
}

SIM_API(cuEventDestroy_v2, (CUevent handle), (handle)) {
  if (events().remove(handle) != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_HANDLE, "event %p was %s", static_cast<void*>(handle), events().why_not(handle));
}

SIM_API_PTSZ(cuEventRecord, (CUevent event, CUstream stream), (event, stream)) { return record(event, stream, 0); }
SIM_API_PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags)) {
  return record(event, stream, flags);
}

static CUresult refuse_captured(const Event& event) {
  if (event.capture_id == 0) return CUDA_SUCCESS;
  invalidate_capture(event.capture_id, "a captured event was queried or waited for");
  return fail(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture");
}

SIM_API(cuEventQuery, (CUevent handle), (handle)) {
  std::shared_ptr<Event> event;
  SIM_TRY(find_event(handle, &event));
  SIM_TRY(refuse_captured(*event));
  SIM_TRY(forbid_in_capture("cuEventQuery"));
  return is_done(event->completion) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_API(cuEventSynchronize, (CUevent handle), (handle)) {
  std::shared_ptr<Event> event;
  SIM_TRY(find_event(handle, &event));
  SIM_TRY(refuse_captured(*event));
  SIM_TRY(forbid_in_capture("cuEventSynchronize"));
  wait_for(event->completion);
  return event->context->sticky;
}

static CUresult elapsed(float* milliseconds, CUevent from, CUevent to) {
  std::shared_ptr<Event> start, end;
  SIM_TRY(find_event(from, &start));
  SIM_TRY(find_event(to, &end));
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(refuse_captured(*start));
  SIM_TRY(refuse_captured(*end));
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 || start->completion == nullptr ||
      end->completion == nullptr) {
    return fail(CUDA_ERROR_INVALID_HANDLE, "an event was not recorded, or made without timing");
  }
  if (!is_done(start->completion) || !is_done(end->completion)) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(end->completion->when - start->completion->when).count();
  return CUDA_SUCCESS;
}

SIM_API(cuEventElapsedTime, (float* ms, CUevent from, CUevent to), (ms, from, to)) { return elapsed(ms, from, to); }
SIM_API(cuEventElapsedTime_v2, (float* ms, CUevent from, CUevent to), (ms, from, to)) { return elapsed(ms, from, to); }

}  // namespace foundry::sim
