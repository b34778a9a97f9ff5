// Events: what was recorded last, in a stream or in a capture.
#pragma once

#include "csrc/sim/stream.h"

namespace foundry::sim {

struct Event {
  CUevent handle = nullptr;
  Context* context = nullptr;
  unsigned flags = 0;
  CompletionRef completion;           // null: never recorded, which counts as complete
  unsigned long long capture_id = 0;  // not 0: last recorded in that capture
  std::vector<CaptureEdge> captured;
};

HandleTable<Event, CUevent, Kind::kEvent>& events();
CUresult find_event(CUevent handle, std::shared_ptr<Event>* event);

}  // namespace foundry::sim
