// Stream capture: sequences, forks and joins, and what may not happen meanwhile.
#include "csrc/sim/capture.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "csrc/sim/library.h"

namespace foundry::sim {
namespace {

thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::map<unsigned long long, std::unique_ptr<Capture>>& captures() {
  static auto* table = new std::map<unsigned long long, std::unique_ptr<Capture>>;
  return *table;
}

bool active(const Capture& capture) { return capture.status == CU_STREAM_CAPTURE_STATUS_ACTIVE; }

void invalidate(Capture& capture, const char* why) {
  if (!active(capture)) return;
  note("capture %llu is invalidated: %s", capture.id, why);
  capture.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult check_active(const Stream& stream) {
  if (active(*stream.capture)) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture of this stream was invalidated before");
}

void end_capture(Capture& capture) {
  for (Stream* stream : capture.members) {
    stream->capture = nullptr;
    stream->capture_tail.clear();
  }
  capture.graph->being_captured = false;
  captures().erase(capture.id);
}

void discard(Capture& capture) {
  std::shared_ptr<Graph> graph = capture.graph;
  bool owned = capture.owns_graph;
  end_capture(capture);
  if (owned) {
    drop_graph(*graph);
    graphs().remove(graph->handle);
  }
}

void join(Capture& capture, Stream& stream) {
  stream.capture = &capture;
  stream.capture_tail.clear();
  capture.members.insert(&stream);
}

void depend(Stream& stream, const CaptureEdge& edge) {
  for (const CaptureEdge& have : stream.capture_tail) {
    if (have.from == edge.from) return;
  }
  stream.capture_tail.push_back(edge);
}

// A stream that was forked off must have been joined: its last nodes lie before the origin's.
bool all_joined(const Capture& capture) {
  std::unordered_set<const Node*> before;
  std::vector<const Node*> left;
  auto visit = [&](const Node* node) {
    if (before.insert(node).second) left.push_back(node);
  };
  for (const CaptureEdge& edge : capture.origin->capture_tail) visit(edge.from);
  while (!left.empty()) {
    const Node* node = left.back();
    left.pop_back();
    for (const Edge& edge : node->dependencies) visit(edge.other);
  }
  for (const Stream* stream : capture.members) {
    for (const CaptureEdge& edge : stream->capture_tail) {
      if (before.count(edge.from) == 0) return false;
    }
  }
  return true;
}

bool blocking_capture_of(const Context& context, Capture** found) {
  for (auto& [id, capture] : captures()) {
    if (!active(*capture)) continue;
    for (const Stream* stream : capture->members) {
      if (stream->context == &context && stream->blocking()) {
        *found = capture.get();
        return true;
      }
    }
  }
  return false;
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
               const std::vector<CaptureEdge>& dependencies) {
  static unsigned long long last_id = 0;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return fail(CUDA_ERROR_INVALID_VALUE, "capture mode %d", static_cast<int>(mode));
  }
  if (stream->legacy) return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy stream cannot be captured");
  if (stream->capture != nullptr) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is being captured already");
  auto capture = std::make_unique<Capture>();
  capture->id = ++last_id;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream.get();
  capture->owns_graph = graph == nullptr;
  capture->graph = graph != nullptr ? graph : make_graph();
  capture->graph->being_captured = true;
  join(*capture, *stream);
  stream->capture_tail = dependencies;
  captures()[capture->id] = std::move(capture);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult forbid_in_capture(const char* what) {
  if (t_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool refused = false;
  for (auto& [id, capture] : captures()) {
    if (!active(*capture)) continue;
    bool mine = capture->thread == std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    bool global = t_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!mine && !global) continue;
    invalidate(*capture, what);
    refused = true;
  }
  if (!refused) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s during a capture", what);
}

CUresult refuse_capturing(Stream& stream, const char* what) {
  if (stream.capture == nullptr) return CUDA_SUCCESS;
  SIM_TRY(check_active(stream));
  invalidate(*stream.capture, what);
  return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s on a stream that is being captured", what);
}

CUresult check_legacy(Stream& stream) {
  Capture* capture;
  if (!stream.legacy || !blocking_capture_of(*stream.context, &capture)) return CUDA_SUCCESS;
  invalidate(*capture, "work on the legacy stream");
  return fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
              "the legacy stream would depend on a blocking stream that is captured");
}

void invalidate_capture(unsigned long long id, const char* why) {
  auto it = captures().find(id);
  if (it != captures().end()) invalidate(*it->second, why);
}

void leave_capture(Stream& stream) {
  if (stream.capture == nullptr) return;
  Capture& capture = *stream.capture;
  invalidate(capture, "one of its streams was destroyed");
  if (capture.origin == &stream) {
    discard(capture);
    return;
  }
  capture.members.erase(&stream);
  stream.capture = nullptr;
}

CUresult capture_work(Stream& stream, Work work) {
  SIM_TRY(check_active(stream));
  std::vector<Edge> dependencies;
  const auto* kernel = std::get_if<KernelWork>(&work);
  for (const CaptureEdge& edge : stream.capture_tail) {
    CUgraphEdgeData data = edge.data;
    if (kernel != nullptr && kernel->programmatic && edge.from->type == CU_GRAPH_NODE_TYPE_KERNEL) {
      data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    }
    dependencies.push_back({edge.from, data});
  }
  CUgraphNodeType type = node_type(work);
  Node* node;
  CUresult added = add_node(*stream.capture->graph, type, std::move(work), dependencies, &node);
  if (added != CUDA_SUCCESS) {
    invalidate(*stream.capture, "a node could not be added");
    return added;
  }
  stream.capture_tail = {CaptureEdge{node, {}}};
  return CUDA_SUCCESS;
}

CUresult capture_record(Stream& stream, Event& event) {
  SIM_TRY(check_active(stream));
  event.capture_id = stream.capture->id;
  event.captured = stream.capture_tail;
  event.completion = nullptr;
  return CUDA_SUCCESS;
}

CUresult capture_wait(Stream& stream, Event& event) {
  if (event.capture_id == 0) {
    SIM_TRY(check_active(stream));
    if (event.completion == nullptr) return CUDA_SUCCESS;  // never recorded: nothing to wait for
    invalidate(*stream.capture, "a wait for work outside of it");
    return fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "the event was recorded outside the capture");
  }
  auto it = captures().find(event.capture_id);
  if (it == captures().end()) {
    return fail(CUDA_ERROR_INVALID_VALUE, "the capture that the event was recorded in has ended");
  }
  Capture& capture = *it->second;
  if (stream.capture != nullptr && stream.capture != &capture) {
    invalidate(*stream.capture, "it would merge with another one");
    invalidate(capture, "it would merge with another one");
    return fail(CUDA_ERROR_STREAM_CAPTURE_MERGE, "the event belongs to another capture");
  }
  if (!active(capture))
    return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the event's capture was invalidated before");
  if (stream.legacy) {
    invalidate(capture, "the legacy stream would join it");
    return fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream cannot join a capture");
  }
  if (stream.capture == nullptr) join(capture, stream);
  for (const CaptureEdge& edge : event.captured) depend(stream, edge);
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamBeginCapture, (CUstream stream), (stream)) {
  return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}
SIM_API_PTSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) {
  return begin(stream, mode, nullptr, {});
}

SIM_API_PTSZ(cuStreamBeginCaptureToGraph,
             (CUstream stream, CUgraph graph_handle, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
              size_t count, CUstreamCaptureMode mode),
             (stream, graph_handle, dependencies, data, count, mode)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(graph_handle, &graph));
  if (graph->being_captured) return fail(CUDA_ERROR_INVALID_VALUE, "the graph is being captured into already");
  std::vector<CaptureEdge> edges;
  for (std::size_t i = 0; i < count; ++i) {
    std::shared_ptr<Node> node;
    SIM_TRY(find_node(dependencies[i], &node));
    if (node->graph != graph.get()) return fail(CUDA_ERROR_INVALID_VALUE, "a dependency is in another graph");
    edges.push_back({node.get(), data != nullptr ? data[i] : CUgraphEdgeData{}});
  }
  return begin(stream, mode, graph, edges);
}

SIM_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode)) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return fail(CUDA_ERROR_INVALID_VALUE, "no such mode");
  }
  std::swap(*mode, t_mode);
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamEndCapture, (CUstream handle, CUgraph* out), (handle, out)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (out != nullptr) *out = nullptr;
  if (stream->capture == nullptr) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  Capture& capture = *stream->capture;
  if (capture.origin != stream.get()) {
    invalidate(capture, "ended in another stream");
    return fail(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began in another stream");
  }
  if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != std::this_thread::get_id()) {
    return fail(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture began in another thread");
  }
  CUresult result = CUDA_SUCCESS;
  if (!active(capture)) {
    result = fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture was invalidated before");
  } else if (!all_joined(capture)) {
    result = fail(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream that was forked off is not joined");
  }
  if (result != CUDA_SUCCESS) {
    discard(capture);
    return result;
  }
  CUgraph graph = capture.graph->handle;
  end_capture(capture);
  if (out != nullptr) *out = graph;
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamIsCapturing, (CUstream handle, CUstreamCaptureStatus* status), (handle, status)) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Capture* capture;
  if (stream->legacy && blocking_capture_of(*stream->context, &capture)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE : stream->capture->status;
  return CUDA_SUCCESS;
}

static CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                             const CUgraphNode** dependencies, const CUgraphEdgeData** data, std::size_t* count) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Capture* other;
  if (stream->legacy && blocking_capture_of(*stream->context, &other)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE : stream->capture->status;
  if (stream->capture == nullptr || !active(*stream->capture)) return CUDA_SUCCESS;
  stream->shown_nodes.clear();
  stream->shown_edges.clear();
  bool lossy = false;
  for (const CaptureEdge& edge : stream->capture_tail) {
    stream->shown_nodes.push_back(edge.from->handle);
    stream->shown_edges.push_back(edge.data);
    lossy |= edge.data.from_port != 0 || edge.data.type != 0;
  }
  if (lossy && dependencies != nullptr && data == nullptr) {
    return fail(CUDA_ERROR_LOSSY_QUERY, "the stream's dependencies have edge data");
  }
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = stream->capture->graph->handle;
  if (dependencies != nullptr) *dependencies = stream->shown_nodes.data();
  if (data != nullptr) *data = stream->shown_edges.data();
  if (count != nullptr) *count = stream->shown_nodes.size();
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
             (stream, status, id)) {
  return capture_info(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
SIM_API_PTSZ(cuStreamGetCaptureInfo_v2,
             (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, size_t* count),
             (stream, status, id, graph, dependencies, count)) {
  return capture_info(stream, status, id, graph, dependencies, nullptr, count);
}
SIM_API_PTSZ(cuStreamGetCaptureInfo_v3,
             (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, const CUgraphEdgeData** data, size_t* count),
             (stream, status, id, graph, dependencies, data, count)) {
  return capture_info(stream, status, id, graph, dependencies, data, count);
}

static CUresult update_dependencies(CUstream handle, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
                                    std::size_t count, unsigned flags) {
  std::shared_ptr<Stream> stream;
  SIM_TRY(find_stream(handle, &stream));
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (dependencies == nullptr && count != 0)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
  }
  if (stream->capture == nullptr) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  SIM_TRY(check_active(*stream));
  std::vector<CaptureEdge> edges;
  for (std::size_t i = 0; i < count; ++i) {
    std::shared_ptr<Node> node;
    SIM_TRY(find_node(dependencies[i], &node));
    if (node->graph != stream->capture->graph.get()) {
      return fail(CUDA_ERROR_INVALID_VALUE, "a dependency is in another graph");
    }
    edges.push_back({node.get(), data != nullptr ? data[i] : CUgraphEdgeData{}});
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
  for (const CaptureEdge& edge : edges) depend(*stream, edge);
  return CUDA_SUCCESS;
}

SIM_API_PTSZ(cuStreamUpdateCaptureDependencies,
             (CUstream stream, CUgraphNode* dependencies, size_t count, unsigned flags),
             (stream, dependencies, count, flags)) {
  return update_dependencies(stream, dependencies, nullptr, count, flags);
}
SIM_API_PTSZ(cuStreamUpdateCaptureDependencies_v2,
             (CUstream stream, CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t count, unsigned flags),
             (stream, dependencies, data, count, flags)) {
  return update_dependencies(stream, dependencies, data, count, flags);
}

}  // namespace foundry::sim
