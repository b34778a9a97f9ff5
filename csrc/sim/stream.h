// Streams: queues that a worker thread each works off in order, and completions to wait for.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "csrc/sim/context.h"

namespace foundry::sim {

struct Capture;
struct Node;
class Worker;

constexpr int kLeastPriority = 0, kGreatestPriority = -5;

// Something that will be done: an operation of a stream, or an event inside a graph.
struct Completion {
  bool done = false;
  std::chrono::steady_clock::time_point when;
};
using CompletionRef = std::shared_ptr<Completion>;

// A captured stream's next node will depend on this.
struct CaptureEdge {
  Node* from = nullptr;
  CUgraphEdgeData data = {};
};

struct Stream {
  CUstream handle = nullptr;
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  bool legacy = false;
  std::shared_ptr<Worker> worker;
  CompletionRef tail;  // of the last operation; null when there was none
  std::map<CUstreamAttrID, CUstreamAttrValue> attributes;

  Capture* capture = nullptr;
  std::vector<CaptureEdge> capture_tail;
  std::vector<CUgraphNode> shown_nodes;  // what cuStreamGetCaptureInfo points to
  std::vector<CUgraphEdgeData> shown_edges;

  bool blocking() const { return !legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

HandleTable<Stream, CUstream, Kind::kStream>& streams();
std::shared_ptr<Stream> make_default_stream(Context& context, bool per_thread);

// A stream argument, the special values included. The default stream is the one that the spelling of the call means.
CUresult find_stream(CUstream handle, std::shared_ptr<Stream>* stream);

// Puts `body` behind everything in the stream, and behind what the default-stream rules and `waits` ask for. `body`
// runs on the worker without the driver's lock.
CompletionRef enqueue(Stream& stream, std::function<void()> body, std::vector<CompletionRef> waits = {});

bool is_done(const CompletionRef& completion);   // null counts as done
void finish(const CompletionRef& completion);    // for completions inside a body
void wait_for(const CompletionRef& completion);  // without the driver's lock
void synchronize_context(Context& context);

// An error of work that already runs: logged, and returned by every later call in the context.
void break_context(Context& context, CUresult code, const char* text);

}  // namespace foundry::sim
