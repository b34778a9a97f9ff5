// LOAD: the threads that turn graph records into execs: loaders of images, and those that build and
// instantiate.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/stopwatch.h"
#include "csrc/driver/driver.h"
#include "csrc/graph/graph_builder.h"
#include "csrc/graph/heap_warmup.h"
#include "csrc/graph/kernels.h"
#include "csrc/graph/libraries.h"
#include "csrc/graph/restore.h"

namespace foundry::graph {

// Room in the heap of each thread, in bytes.
struct HeapRoom {
  uint64_t loader = 0, builder = 0;
};
// By what the archive holds: execs of the graphs in `options.order`, within the budget, and their images.
HeapRoom heap_room(const GraphView& view, const RestoreOptions& options, uint32_t loaders, uint32_t builders);

class Pipeline {
 public:
  // All references must outlive the object; `options` passed Restorer::start's checks.
  Pipeline(const driver::Driver& driver, const GraphView& view, Libraries& libraries, Kernels& kernels,
           const GraphBuilder& builder, const RestoreOptions& options);
  // Stops the threads and destroys all execs.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // May throw std::system_error where the machine gives no threads; what was started is stopped by the destructor.
  void start_threads();

  Result<CUgraphExec> wait(uint32_t graph);
  void release();
  void prefer(uint32_t graph);
  CUgraphExec ready(uint32_t graph) const;
  // Like wait(), but the exec stays until give_back(); what has none any more is built by the caller. Context current.
  Result<CUgraphExec> acquire(uint32_t graph);
  void give_back(uint32_t graph);
  Status wait_all();
  void cancel();
  RestoreStats stats() const;

 private:
  enum class Phase { unlisted, held, queued, building, ready, evicted, failed };
  struct Slot {
    Phase phase = Phase::unlisted;
    uint32_t place = 0;  // in the order
    bool urgent = false;
    uint32_t users = 0;    // between acquire() and give_back(); counted with a budget only
    uint64_t used_at = 0;  // when it was acquired last, by clock_; 0: never
    std::atomic<CUgraphExec> exec{nullptr};
    Error error;
  };

  // Runs `body` with the context current and unharmed by captures on other threads; its failure ends the restore.
  void run_thread(const std::string& name, const std::function<void()>& body);
  void load_images();
  void restore_graphs();
  // What stays until the calling thread's work is done.
  HeapWarmup grow_heap(uint64_t bytes);
  // Null if the graph failed. Called without the mutex, as the next.
  CUgraph build(uint32_t graph);
  void instantiate(uint32_t graph, CUgraph built);
  std::optional<uint32_t> next_to_build();
  double ms_since_start() const;
  void finish(uint32_t graph, Result<CUgraphExec> exec);  // mutex held
  void hurry(uint32_t graph);                             // mutex held
  void keep(uint32_t graph, CUgraphExec exec);            // mutex held
  void evict(uint32_t but);                               // mutex held
  Status rebuild(uint32_t graph, std::unique_lock<std::mutex>& lock);
  Result<CUgraphExec> exec_of(uint32_t graph, CUgraph built);
  // Fails what no thread has in hand; the threads fail the rest and end.
  void stop(const Error& reason);
  Error unlisted(uint32_t graph) const;

  const driver::Driver& driver_;
  const GraphView& view_;
  Libraries& libraries_;
  Kernels& kernels_;
  const GraphBuilder& builder_;
  const RestoreOptions& options_;
  const Stopwatch start_;  // never lapped

  mutable std::mutex mutex_;
  std::condition_variable work_;  // for the threads that build
  std::condition_variable done_;  // for those who wait for graphs
  std::vector<Slot> slots_;       // by graph
  std::deque<uint32_t> to_build_;
  std::vector<uint32_t> held_;
  uint64_t clock_ = 0;            // of acquire()
  uint32_t open_ = 0;             // graphs neither ready nor failed
  std::optional<Error> stopped_;  // why
  RestoreStats stats_;
  uint32_t loading_ = 1, building_ = 1;  // threads
  HeapRoom room_;
  std::mutex joining_;  // guards threads_; taken before mutex_
  std::vector<std::thread> threads_;
};

}  // namespace foundry::graph
