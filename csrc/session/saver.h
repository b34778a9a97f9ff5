// SAVE of one rank: collects graphs and tensors, audits them, writes images/ and rank_<n>/.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "csrc/archive/publish.h"
#include "csrc/base/result.h"
#include "csrc/graph/abi_images.h"
#include "csrc/graph/audit.h"
#include "csrc/graph/reach.h"
#include "csrc/graph/snapshot.h"
#include "csrc/session/allocation_origins.h"
#include "csrc/session/capture_inputs.h"
#include "csrc/session/input_watch.h"
#include "csrc/session/memory_keeper.h"
#include "csrc/session/memory_plan.h"
#include "csrc/session/memory_scanner.h"
#include "csrc/session/poison.h"
#include "csrc/session/process.h"
#include "csrc/session/tensors.h"

namespace foundry::session {

struct GraphSummary {
  uint32_t index = 0;
  std::string name;
  uint32_t nodes = 0, edges = 0;
  std::map<std::string, uint32_t> nodes_by_type;
  std::string outputs;
  uint64_t generator_increment = 0;
  uint64_t generator_seed = 0, generator_offset = 0;  // addresses of the device words
};
// Graphs that were captured (child graphs are part of theirs).
std::vector<GraphSummary> summarize(const graph::GraphView& view);

struct SaveReport {
  std::vector<GraphSummary> graphs;                          // published
  std::map<std::string, std::vector<std::string>> left_out;  // graph -> sentences
  std::vector<std::string> warnings;
  std::map<std::string, uint64_t> bytes_by_file;
  uint64_t mapped_bytes = 0, content_bytes = 0, stored_bytes = 0;
  uint32_t images = 0;
  uint64_t image_bytes = 0;
  std::map<std::string, double> milliseconds;
};

class GoldenRecorder;

// A graph that is left out only because words of its nodes point to memory that was freed. They may be what an unused
// part of an argument happened to hold.
struct Doubt {
  uint32_t graph = 0;
  std::string name;
};

// Not thread-safe. Order: add_... and set_..., examine, (replays that prove or record something), write, (golden runs).
class Saver {
 public:
  ~Saver();
  // `state` where the hook is not preloaded: code images and ambient allocations would be missing.
  static Result<std::unique_ptr<Saver>> create(int device);

  // Right after a capture, before any replay: registered tensors with the memory that they have now. Replays of the
  // graph that is added next find small mutable ones of integers among them as they are now.
  Status take_capture_inputs(std::span<const TensorInfo> tensors);
  // Pinned memory that graphs added afterwards may use.
  Status add_host_range(graph::NamedRange range);
  Result<uint32_t> add_graph(CUgraph graph, const std::string& name);
  Result<uint32_t> add_tensor(TensorInfo tensor) { return tensors_.add(std::move(tensor)); }
  // `tree`: JSON of the nesting; its leaves are tensor indices.
  Status set_outputs(uint32_t graph, std::string tree, std::vector<uint32_t> tensors);
  // The graph draws from the framework's generator. Finds, among the addresses in its arguments, the device words that
  // hold `seed` and `offset` now; the caller has just made the framework write these values there.
  Status set_generator(uint32_t graph, uint64_t increment, uint64_t seed, uint64_t offset);
  // LOAD hands an event that graphs record or wait for back under this name, created with these CUevent_flags. False if
  // no graph that was added uses it.
  Result<bool> name_event(CUevent event, const std::string& name, uint32_t flags);
  void set_blocks(std::vector<FrameworkBlock> blocks) { blocks_ = std::move(blocks); }

  // Right after a capture, any number of times: remembers what memory holds that only warm-ups and other code of the
  // program made. `blocks`: as for set_blocks, now.
  // `again`: also what became of memory that is known, which takes as long as reading all of it.
  Status watch_inputs(const std::vector<FrameworkBlock>& blocks, bool again);

  // Audits; nothing can be added afterwards. The caller may settle the doubts by replays; what is not settled is left
  // out.
  Result<std::vector<Doubt>> examine();
  // `refusal` says why the words may be pointers; empty: they are padding.
  Status settle(uint32_t graph, const std::string& refusal);

  // Keeps, once, what replays change: mutable tensors, materialized content and module variables, each as far as
  // kMostKeptBytes goes. After examine(); nothing may be running from here on, in this and the following calls.
  Status keep_state();
  Status restore_state();
  // Hash of a graph's outputs and of the kept mutable tensors; empty if there are neither.
  Result<std::string> fingerprint(uint32_t graph);
  // Before any replay of a doubtful graph: what it points to is mapped, whatever happened to it, and kept.
  Status expose(uint32_t graph);
  Status poison(uint32_t pattern);
  Result<bool> untouched() const;
  Status heal();

  // Before any replay of a graph, and after what puts memory back: its capture inputs.
  Status put_capture_inputs(uint32_t graph);

  // After examine(): graphs that read watched memory which holds something else now. To be replayed in rounds, all in
  // one order: put_inputs before the first, output_fingerprint after each, note_writes after the last.
  Result<std::vector<uint32_t>> changed_inputs();
  // What replays change, but for large tensors, is as it was at the first call; watched memory holds what it held then,
  // or when it was watched.
  Status put_inputs(bool earlier);
  Result<std::string> output_fingerprint(uint32_t graph);
  Status note_writes(bool earlier);
  // The graphs among them that read memory which no replay of a round wrote.
  std::vector<uint32_t> unwritten_inputs();
  // Such a graph may depend on that memory; `refusal` says why.
  Status settle_inputs(uint32_t graph, const std::string& refusal);
  // What of that memory is read by graphs that are not settled alone can be poisoned until heal(); which graphs that
  // is. After put_inputs.
  Result<std::vector<uint32_t>> expose_inputs();
  // Leaves out those that may, and all others that read the same memory.
  Status judge_inputs();

  // Before each golden replay: the kept state, and a filling for mutable memory that is too large to be stored.
  Status prepare_golden();
  Status observe_golden(uint32_t graph, uint64_t seed, uint64_t offset);
  // After write(). Brings the kept state back; returns the bytes of mutable memory that could not be kept and is zero
  // now.
  Result<uint64_t> write_golden(archive::Publication& staging, uint32_t rank);

  // Once. With `strict` any graph that would be left out is an error instead. With `compact` records are compressed: a
  // smaller archive that takes longer to open.
  Result<SaveReport> write(archive::Publication& staging, uint32_t rank, bool strict, bool compact);

 private:
  struct Outputs {
    std::string tree;
    std::vector<uint32_t> tensors;
  };

  Saver(Process& process, int device, CUcontext context);
  std::vector<graph::Anchor> anchors() const;
  // What examine() found.
  struct Examination {
    MemoryState memory;
    graph::AuditResult audit;
    std::map<uint32_t, std::vector<size_t>> doubts;  // graph -> indices of findings
    SaveReport report;                               // so far
  };
  void judge(Examination& found);
  // Leaves out graphs with kernels of images whose module variables could not be read.
  void judge_images(const std::map<uint32_t, std::string>& unreadable, SaveReport& report);
  // Leaves out graphs with outputs in memory that LOAD's code makes anew without anybody having registered it.
  void judge_outputs(const MemoryState& memory, SaveReport& report);
  void leave_out(uint32_t graph, std::string sentence, SaveReport& report);
  // The first sentences about a graph, and how many more there would be.
  void leave_out(uint32_t graph, const std::vector<size_t>& findings, Examination& found);
  Result<std::vector<TensorInfo>> outputs_of(uint32_t graph) const;
  Result<std::vector<uint32_t>> reached(const MemoryState& memory, const graph::AuditResult& audit, SaveReport& report);
  std::set<uint32_t> known_inputs() const;
  std::vector<uint32_t> readers_of(size_t change) const;
  Status keep_light_state();
  Result<std::vector<MemoryPart>> kept_parts();
  Result<std::string> hash_outputs(DeviceMemory& device, uint32_t graph, uint64_t& bytes);
  // What is reached from ranges through what memory holds.
  Result<graph::ReachResult> follow(const MemoryState& memory, const std::set<uint32_t>& roots);
  // Made when they are needed first.
  Result<MemoryScanner*> scanner();
  Result<DeviceMemory*> copies();
  Status write_graphs(int directory, const std::string& name, bool compact, SaveReport& report);
  Status write_memory(int directory, const std::string& name, const MemoryState& memory,
                      const std::vector<uint32_t>& reached, SaveReport& report);
  Status write_journal(int directory, const std::string& name, const MemoryState& memory, SaveReport& report);

  Process& process_;
  int device_;
  CUcontext context_;
  uint32_t capability_ = 0;     // 10 * major + minor
  uint64_t first_ordinal_ = 0;  // of an allocation of this session; LOAD repeats none of those before it
  graph::AbiImages images_;
  graph::Snapshotter snapshotter_;
  AllocationOrigins origins_;
  CaptureInputs capture_inputs_;
  TensorBook tensors_;
  std::map<uint32_t, Outputs> outputs_;
  std::vector<FrameworkBlock> blocks_;
  double snapshot_ms_ = 0;
  InputWatch watch_;
  std::map<uint32_t, std::set<size_t>> readers_;    // graph -> changes that it reads
  std::map<uint32_t, std::string> input_refusals_;  // graph -> why it may depend on them
  std::unique_ptr<MemoryKeeper> light_state_;
  std::unique_ptr<DeviceMemory> copies_;
  std::unique_ptr<Examination> found_;
  std::unique_ptr<MemoryScanner> scanner_;
  std::vector<MemoryPart> inputs_, lost_inputs_;
  std::unique_ptr<MemoryKeeper> kept_inputs_, kept_state_;
  std::unique_ptr<Poison> poison_;
  std::unique_ptr<GoldenRecorder> golden_;
  bool written_ = false;
};

}  // namespace foundry::session
