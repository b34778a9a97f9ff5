// LOAD: rebuilds and instantiates the graphs of an archive in the background, in an order the caller chooses.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

// The bytes of a code image. `owner` keeps them alive: the driver reads them for as long as the library is loaded.
struct ImageBytes {
  std::span<const std::byte> data;
  std::shared_ptr<const void> owner;
};

// Returns the image of record `images[index]`, ready for cuLibraryLoadData (PTX text ends with a zero byte). Called
// from several threads at once, once per image.
using ImageProvider = std::function<Result<ImageBytes>(uint32_t index)>;

// How the work is spread over threads.
struct RestoreTuning {
  // Threads that load images and look up their functions; 0 chooses by the machine (at most 8). They do so before a
  // graph asks: loading the code of one function can take 15 ms, and graph threads would wait for it.
  uint32_t image_threads = 0;
  // Threads that build and instantiate graphs; 0 chooses by the machine (at most 2: the driver serializes most of it).
  // Building on other threads than instantiating gains nothing: both calls take the driver's lock.
  uint32_t graph_threads = 0;
  // These threads make room in their heaps before they begin (HeapWarmup), as much as heap_room() says.
  bool grow_heaps = true;
  // Graphs that are equal in every respect (first_equals) have one exec.
  bool share_execs = true;
};

struct RestoreOptions {
  CUcontext context = nullptr;  // must be set; the caller keeps it alive
  CUdevice device = 0;
  // Graphs to restore, the first one first: indices of graphs that are no child graphs and were not left out. Graphs
  // that are not listed are not restored.
  std::vector<uint32_t> order;
  // Graphs of `order` that are not built before release().
  std::vector<uint32_t> held;
  RestoreTuning tuning;
  // torch's flags, so that a restored graph runs as the captured one did.
  uint32_t instantiate_flags =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  // Device memory that execs may take together, as exec_bytes() counts it; 0: no bound. Beyond it graphs lose their
  // execs: first those that were never launched, the last in `order` first, then the one that was launched longest ago.
  // The next launch builds the exec anew.
  uint64_t exec_budget = 0;
  // Difference (here minus SAVE) of the base of each relocatable range, by PointerRecord::target.
  std::vector<int64_t> relocations;
};

// Where the time went, in milliseconds. Work of several threads adds up, so the parts can exceed `total_ms`.
struct RestoreStats {
  double images_ms = 0;   // cuLibraryLoadData and what the image provider did
  double globals_ms = 0;  // module variables written
  double kernels_ms = 0;  // kernel lookup, parameter check, function attributes
  double build_ms = 0;    // nodes, attributes, edges
  double instantiate_ms = 0;
  // Of the threads' time, what they spent in the system (page faults, mappings).
  double images_system_ms = 0, graphs_system_ms = 0;
  // From construction until the last image was loaded, until the last graph was built, until the first graph could be
  // launched; 0 before.
  double images_end_ms = 0, build_end_ms = 0, first_ready_ms = 0;
  double total_ms = 0;  // from construction until the last graph was ready or failed; 0 before
  uint64_t image_bytes = 0;
  uint64_t heap_bytes = 0;  // room made in heaps
  uint32_t images = 0, functions = 0, graphs_ready = 0, graphs_failed = 0;
  uint64_t nodes = 0, edges = 0;
  uint64_t exec_device_bytes = 0, exec_host_bytes = 0;  // of the execs that exist now, as exec_bytes() counts them
  uint32_t execs = 0, evicted = 0, rebuilt = 0;
};

// What an exec takes of the driver's pools. The driver does not tell; it takes this much for every node, child graphs
// included (driver 580 on an H200, 67 graphs of 25,441 nodes: 73.4 MB on the device, 197.9 MB of host memory).
struct ExecBytes {
  uint64_t device = 0, host = 0;
};
ExecBytes exec_bytes(const GraphView& view, uint32_t graph);

// Thread-safe, except that nobody may be inside a call while the object is destroyed. No graph may be running on the
// device then.
class Restorer {
 public:
  // Checks the arguments and starts the threads; returns at once. `driver` and the bytes behind `view` must outlive
  // the object. The view must have passed the archive's validation.
  static Result<std::unique_ptr<Restorer>> start(const driver::Driver& driver, const GraphView& view,
                                                 ImageProvider images, RestoreOptions options);
  // Stops the threads, then destroys execs, events and libraries, in this order.
  ~Restorer();
  Restorer(const Restorer&) = delete;
  Restorer& operator=(const Restorer&) = delete;

  // Before release(): where host range `range` lies here (here minus SAVE), or why there is none. Graphs that use it
  // must be held; without this call they fail.
  void place_host(uint32_t range, Result<int64_t> shift);
  // Builds the graphs that were held back, too; later calls do nothing.
  void release();
  // Blocks until the graph is ready and moves it to the front of the work. Graphs that are equal have one exec, and the
  // name of the first of them in errors. The error names graph, node and kernel;
  // other graphs are not affected by it. A graph that is held back is waited for until it is released. With a budget
  // the exec may be null, or gone at any time: launch() only.
  Result<CUgraphExec> wait(uint32_t graph);
  // Moves the graph to the front of the work, without waiting for it.
  void prefer(uint32_t graph);
  // Never blocks: null while the graph is not ready, and when it failed.
  CUgraphExec ready(uint32_t graph) const;
  // Blocks until every graph is ready or has failed; the first error in order, if any.
  Status wait_all();
  // Waits for the graph if need be, builds its exec anew if it has none any more, and launches it. Context current.
  Status launch(uint32_t graph, CUstream stream);

  // The event that graphs of the archive record or wait on under this name; `invalid` if there is none.
  Result<CUevent> event(std::string_view name) const;
  // Address here of the module global `module_globals[index]`; waits for its image. Context current.
  Result<uint64_t> module_global(uint32_t index);

  // Graphs that are not ready fail with `state`; what is ready stays usable. Returns when the threads have stopped.
  void cancel();
  RestoreStats stats() const;

 private:
  struct State;
  explicit Restorer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The images that these graphs need, child graphs included, in order of first use; then those whose module globals are
// among the graphs' arguments.
std::vector<uint32_t> images_of(const GraphView& view, std::span<const uint32_t> graphs);

// Memory that is mapped before graphs are built.
struct MappedRange {
  uint64_t address = 0, bytes = 0;
};

// Graphs of `order` whose nodes name memory that must be there when they are added, and is not among `mapped` (by
// address), also in child graphs: the driver checks the addresses of copies and fills, and those of host memory move.
std::vector<uint32_t> graphs_with_copies(const GraphView& view, std::span<const uint32_t> order,
                                         std::span<const MappedRange> mapped);

}  // namespace foundry::graph
