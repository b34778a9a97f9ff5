// LOAD of one rank: a verified archive, and what puts it into this process step by step.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/archive/inventory.h"
#include "csrc/archive/reader.h"
#include "csrc/base/result.h"
#include "csrc/graph/restore.h"
#include "csrc/session/event.h"
#include "csrc/session/process.h"
#include "csrc/session/saver.h"
#include "csrc/session/tensors.h"

namespace foundry::session {

struct ZoneSummary {
  std::string name;
  uint32_t kind = 0;
  uint64_t base = 0, size = 0, used_end = 0;
  uint64_t allocations = 0, allocated_bytes = 0;
  uint64_t mapped_bytes = 0, content_bytes = 0;
};

// A file of an archive that `inventory` (of foundry.json) lists, every hash and index checked.
Result<archive::File> open_listed(int directory, const std::string& name, archive::FileKind kind,
                                  const std::vector<archive::FileDescription>& inventory);

// The files of one rank in private memory, every hash and index checked. Touches no device; immutable.
class ArchiveData {
 public:
  // `inventory` is what foundry.json lists; files of the rank that it does not list are an error.
  static Result<std::shared_ptr<ArchiveData>> open(const std::string& path, uint32_t rank,
                                                   const std::vector<archive::FileDescription>& inventory);

  const std::string& path() const { return path_; }
  int directory() const { return directory_.get(); }
  const archive::File& memory() const { return memory_; }
  const archive::File& graphs_file() const { return graphs_; }
  graph::GraphView graphs() const { return graph::GraphView::of(graphs_); }
  std::vector<ZoneSummary> zones() const;
  // Reads every image that graphs use and checks its hash.
  Status verify_images() const;

 private:
  ArchiveData(std::string path, archive::FileDescriptor directory, archive::File graphs, archive::File memory)
      : path_(std::move(path)),
        directory_(std::move(directory)),
        graphs_(std::move(graphs)),
        memory_(std::move(memory)) {}

  std::string path_;
  archive::FileDescriptor directory_;
  archive::File graphs_;
  archive::File memory_;
};

struct LoadStats {
  std::map<std::string, double> milliseconds;
  uint64_t mapped_bytes = 0, content_bytes = 0;
  uint32_t images = 0, functions = 0;
  uint64_t nodes = 0;
  // graph::RestoreStats
  uint64_t exec_device_bytes = 0, exec_host_bytes = 0;
  uint32_t execs = 0, evicted = 0, rebuilt = 0;
};

// Steps in order: open_zones, (the engine's phases), map, claim as needed, start, wait/launch, close. Thread-safe for
// wait and launch. What a failed step mapped is unmapped by close.
class Loader {
 public:
  static Result<std::unique_ptr<Loader>> create(std::shared_ptr<const ArchiveData> archive, int device);
  ~Loader() { close(); }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Zone name -> slot in this process.
  Result<std::map<std::string, uint32_t>> open_zones();
  // Maps materialized memory and begins to fill it in the background.
  Status map();
  // Until it is filled; the error is the content's. wait() and launch_random() do so too.
  Status wait_content();
  Status claim(uint64_t address, uint64_t bytes);
  // Graphs with copies or fills wait for settle(). `exec_budget`: RestoreOptions.
  Status start(std::vector<uint32_t> order, const graph::RestoreTuning& tuning = {}, uint64_t exec_budget = 0);
  // After start() and before settle(): the program's pinned memory of that name. What is wrong with it becomes the
  // error of the graphs that use it; a name that the archive does not have is no error.
  Status register_host(const graph::NamedRange& range);
  // The memory of rebuilt zones is mapped now.
  void settle();
  // Graphs that are not ready fail; those that are stay usable. Returns when the threads have stopped.
  void cancel();
  Status wait(uint32_t graph);
  Status launch(uint32_t graph, CUstream stream);
  // Launches a graph that draws random numbers: the words its kernels read are written on the stream first.
  Status launch_random(uint32_t graph, CUstream stream, uint64_t seed, uint64_t offset);
  Status pin();
  // The event that graphs use under this name. `invalid` if there is none, `state` before start and after close.
  Result<Event> event(const std::string& name) const;
  // Materialized memory as the archive has it, once more. No graph may be running.
  Status refill();
  // Address here of a module variable (index into `module_globals`); waits for its image.
  Result<uint64_t> module_global(uint32_t index);
  const Process& process() const { return process_; }
  CUcontext context() const { return context_; }
  LoadStats stats() const;
  // Destroys graphs, then gives materialized memory back. Rebuilt zones stay while tensors live in them.
  void close();

 private:
  Loader(Process& process, std::shared_ptr<const ArchiveData> archive, int device, CUcontext context)
      : process_(process), archive_(std::move(archive)), device_(device), context_(context) {}
  struct Filled {
    uint64_t bytes = 0;
    double milliseconds = 0;
  };
  Result<Filled> fill();
  std::shared_ptr<graph::Restorer> restorer() const;

  Process& process_;
  std::shared_ptr<const ArchiveData> archive_;
  int device_;
  CUcontext context_;
  std::vector<uint32_t> slots_;  // per zone record
  std::vector<graph::MappedRange> mapped_;
  std::vector<std::pair<uint64_t, uint64_t>> pinned_;
  std::shared_ptr<graph::Restorer> restorer_;
  std::mutex filling_;  // guards the next two; taken before mutex_
  std::future<Result<Filled>> content_;
  Status content_status_ = success();
  std::atomic<bool> filled_{false};
  mutable std::mutex mutex_;
  LoadStats stats_;
};

}  // namespace foundry::session
