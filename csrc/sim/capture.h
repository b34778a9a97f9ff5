// Stream capture.
#pragma once

#include <set>
#include <string>
#include <thread>

#include "csrc/sim/event.h"
#include "csrc/sim/graph.h"
#include "csrc/sim/work.h"

namespace foundry::sim {

struct Capture {
  unsigned long long id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  std::thread::id thread;
  Stream* origin = nullptr;
  std::set<Stream*> members;
  std::shared_ptr<Graph> graph;
  bool owns_graph = true;  // false for cuStreamBeginCaptureToGraph
};

// For calls that are unsafe while a capture runs ("potentially unsafe API calls" of cuThreadExchangeStreamCaptureMode):
// refuses and invalidates the captures that the calling thread's mode and theirs put in the way.
CUresult forbid_in_capture(const char* what);
// For calls that make no sense on a stream that is being captured: refuses and invalidates that capture.
CUresult refuse_capturing(Stream& stream, const char* what);
// Work on the legacy stream would have to wait for blocking streams; they must not be capturing.
CUresult check_legacy(Stream& stream);

CUresult capture_work(Stream& stream, Work work);
CUresult capture_record(Stream& stream, Event& event);
CUresult capture_wait(Stream& stream, Event& event);
void invalidate_capture(unsigned long long id, const char* why);
void leave_capture(Stream& stream);  // the stream ends

}  // namespace foundry::sim
