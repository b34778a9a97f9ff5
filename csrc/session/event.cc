#include "csrc/session/event.h"

#include "csrc/base/text.h"
#include "csrc/session/loader.h"

namespace foundry::session {
namespace {

bool uses_event(const graph::GraphView& view, uint32_t index, uint32_t event) {
  const archive::GraphRecord& graph = view.graphs[index];
  for (const archive::NodeRecord& node : view.nodes.subspan(graph.first_node, graph.node_count)) {
    if (node.type == CU_GRAPH_NODE_TYPE_GRAPH && uses_event(view, node.payload, event)) return true;
    if ((node.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || node.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) &&
        node.payload == event) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::map<std::string, std::vector<uint32_t>> named_events(const graph::GraphView& view) {
  std::map<std::string, std::vector<uint32_t>> events;
  for (uint32_t event = 0; event < view.graph_events.size(); ++event) {
    const std::string name(view.text(view.graph_events[event].name));
    if (name.empty()) continue;
    for (uint32_t index = 0; index < view.graphs.size(); ++index) {
      if ((view.graphs[index].flags & (archive::kGraphIsChild | archive::kGraphLeftOut)) != 0) continue;
      if (uses_event(view, index, event)) events[name].push_back(index);
    }
  }
  return events;
}

Result<Event> Loader::event(const std::string& name) const {
  FOUNDRY_TRY(Process::usable());
  std::shared_ptr<graph::Restorer> restorer = this->restorer();
  if (!restorer) return Error{ErrorKind::state, 0, "graphs are not being restored, so they have no events"};
  FOUNDRY_ASSIGN(const CUevent event, restorer->event(name));
  return Event(process_.driver(), context_, std::move(restorer), event);
}

Result<bool> Event::captures(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  FOUNDRY_CU(*driver_, cuStreamIsCapturing, stream, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Status Event::record(CUstream stream) const {
  FOUNDRY_TRY(Process::usable());
  driver::ScopedContext scope(*driver_, context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_ASSIGN(const bool capturing, captures(stream));
  FOUNDRY_CU(*driver_, cuEventRecordWithFlags, event_, stream,
             capturing ? CU_EVENT_RECORD_EXTERNAL : CU_EVENT_RECORD_DEFAULT);
  return success();
}

Status Event::wait(CUstream stream) const {
  FOUNDRY_TRY(Process::usable());
  driver::ScopedContext scope(*driver_, context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_ASSIGN(const bool capturing, captures(stream));
  FOUNDRY_CU(*driver_, cuStreamWaitEvent, stream, event_, capturing ? CU_EVENT_WAIT_EXTERNAL : CU_EVENT_WAIT_DEFAULT);
  return success();
}

Status Event::synchronize() const {
  FOUNDRY_TRY(Process::usable());
  driver::ScopedContext scope(*driver_, context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(*driver_, cuEventSynchronize, event_);
  return success();
}

Result<bool> Event::query() const {
  FOUNDRY_TRY(Process::usable());
  driver::ScopedContext scope(*driver_, context_);
  FOUNDRY_TRY(scope.status());
  const CUresult code = driver_->cuEventQuery(event_);
  if (code == CUDA_ERROR_NOT_READY) return false;
  if (code != CUDA_SUCCESS) return driver_->error(code, "cuEventQuery");
  return true;
}

}  // namespace foundry::session
