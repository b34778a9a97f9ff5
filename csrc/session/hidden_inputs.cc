// SAVE: graphs that read what the program rewrites between replays and nobody registered are left out.
#include <algorithm>
#include <set>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/session/saver.h"

namespace foundry::session {
namespace {

// Of mutable tensors, restored before each round of replays, in some 20 ms on a calm machine.
constexpr uint64_t kMostRestoredBytes = uint64_t{128} << 20;

}  // namespace

Result<DeviceMemory*> Saver::copies() {
  if (!copies_) {
    FOUNDRY_ASSIGN(DeviceMemory made, DeviceMemory::create(process_.driver()));
    copies_ = std::make_unique<DeviceMemory>(std::move(made));
  }
  return copies_.get();
}

Status Saver::watch_inputs(const std::vector<FrameworkBlock>& blocks, bool again) {
  if (found_) return Error{ErrorKind::state, 0, "this SAVE was examined already"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  FOUNDRY_ASSIGN(const MemoryState memory, read_memory_state(process_, device_, blocks, {}));
  FOUNDRY_ASSIGN(DeviceMemory * device, copies());
  return watch_.watch(*device, memory, again);
}

// What the program is given back on LOAD, by name or as an output, it can rewrite there; the words of a generator LOAD
// writes itself.
std::set<uint32_t> Saver::known_inputs() const {
  const graph::MemoryMap& map = found_->memory.map;
  std::set<uint32_t> ranges;
  const auto add = [&](uint64_t address) {
    const uint32_t range = map.range_of(address);
    if (range != archive::kNone) ranges.insert(range);
  };
  for (const TensorInfo& tensor : tensors_.tensors()) {
    if ((tensor.flags & (archive::kExport | archive::kOutput)) != 0 && tensor.bytes != 0) add(tensor.address);
  }
  for (const archive::GraphRecord& graph : snapshotter_.tables().graphs) {
    if (graph.generator_increment == 0) continue;
    add(graph.generator_seed);
    add(graph.generator_offset);
  }
  return ranges;
}

Result<std::vector<uint32_t>> Saver::changed_inputs() {
  if (!found_) return Error{ErrorKind::state, 0, "memory is compared after a SAVE was examined"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  const MemoryState& memory = found_->memory;
  readers_.clear();
  FOUNDRY_ASSIGN(DeviceMemory * device, copies());
  FOUNDRY_TRY(watch_.compare(*device, memory));
  const std::set<uint32_t> known = known_inputs();
  std::erase_if(watch_.changes(), [&](const InputWatch::Change& change) { return known.contains(change.range); });
  std::vector<uint32_t> graphs;
  if (watch_.changes().empty()) return graphs;

  std::map<uint32_t, std::set<uint32_t>> roots;
  for (const graph::Root& root : found_->audit.roots) {
    if ((snapshotter_.tables().graphs[root.graph].flags & archive::kGraphLeftOut) == 0) {
      roots[root.graph].insert(root.range);
    }
  }
  for (const auto& [graph, ranges] : roots) {
    FOUNDRY_ASSIGN(const graph::ReachResult reach, follow(memory, ranges));
    std::set<size_t> read;
    for (size_t index = 0; index < watch_.changes().size(); ++index) {
      const uint32_t range = watch_.changes()[index].range;
      if (std::binary_search(reach.ranges.begin(), reach.ranges.end(), range)) read.insert(index);
    }
    if (read.empty()) continue;
    readers_[graph] = std::move(read);
    graphs.push_back(graph);
  }
  return graphs;
}

// Restored before every round: what the archive will hold, and mutable tensors but for what takes long: caches, in
// which replays of the same inputs write the same.
Status Saver::keep_light_state() {
  FOUNDRY_ASSIGN(std::vector<MemoryPart> content, kept_parts());
  auto kept = std::make_unique<MemoryKeeper>(process_.driver());
  FOUNDRY_ASSIGN(const auto too_much, kept->keep(std::move(content)));
  if (!too_much.empty()) {
    return Error{ErrorKind::out_of_memory, 0,
                 format("graphs reach more than %s of memory outside phases, too much to be put back",
                        bytes_text(kMostKeptBytes).c_str())};
  }
  uint64_t bytes = kMostRestoredBytes;
  for (const MemoryKeeper::Piece& piece : kept->pieces()) bytes += piece.bytes.size();
  FOUNDRY_ASSIGN([[maybe_unused]] const auto large, kept->keep(mutable_memory(tensors_.tensors()), bytes));
  light_state_ = std::move(kept);
  return success();
}

Status Saver::put_inputs(bool earlier) {
  if (!found_) return Error{ErrorKind::state, 0, "memory is put back after a SAVE was examined"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  if (!light_state_) FOUNDRY_TRY(keep_light_state());
  FOUNDRY_ASSIGN(DeviceMemory * device, copies());
  FOUNDRY_TRY(light_state_->restore(*device));
  FOUNDRY_TRY(capture_inputs_.put_back(*device));
  return watch_.put(*device, found_->memory, earlier);
}

Result<std::string> Saver::output_fingerprint(uint32_t graph) {
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_ASSIGN(DeviceMemory * device, copies());
  uint64_t bytes = 0;
  FOUNDRY_ASSIGN(std::string text, hash_outputs(*device, graph, bytes));
  return bytes == 0 ? std::string() : text;
}

Status Saver::note_writes(bool earlier) {
  if (!found_) return Error{ErrorKind::state, 0, "writes are noted after a SAVE was examined"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  FOUNDRY_ASSIGN(DeviceMemory * device, copies());
  return watch_.note(*device, found_->memory, earlier);
}

std::vector<uint32_t> Saver::readers_of(size_t change) const {
  std::vector<uint32_t> readers;
  for (const auto& [graph, read] : readers_) {
    if (read.contains(change)) readers.push_back(graph);
  }
  return readers;
}

std::vector<uint32_t> Saver::unwritten_inputs() {
  std::set<uint32_t> graphs;
  for (size_t index = 0; index < watch_.changes().size(); ++index) {
    if (watch_.changes()[index].any_written()) continue;
    for (const uint32_t graph : readers_of(index)) graphs.insert(graph);
  }
  return {graphs.begin(), graphs.end()};
}

Result<std::vector<uint32_t>> Saver::expose_inputs() {
  if (!found_ || poison_)
    return Error{ErrorKind::state, 0, "a SAVE is examined first, and one test ends before another"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  std::set<uint32_t> graphs;
  std::vector<uint32_t> ranges;
  for (size_t index = 0; index < watch_.changes().size(); ++index) {
    const InputWatch::Change& change = watch_.changes()[index];
    const std::vector<uint32_t> readers = readers_of(index);
    const bool settled =
        std::any_of(readers.begin(), readers.end(), [&](uint32_t graph) { return input_refusals_.contains(graph); });
    if (readers.empty() || change.any_written() || settled) continue;
    ranges.push_back(change.range);
    graphs.insert(readers.begin(), readers.end());
  }
  if (ranges.empty()) return std::vector<uint32_t>();
  FOUNDRY_ASSIGN(poison_, Poison::create(process_, found_->memory, ranges));
  return std::vector<uint32_t>(graphs.begin(), graphs.end());
}

Status Saver::settle_inputs(uint32_t graph, const std::string& refusal) {
  if (!readers_.contains(graph)) return Error{ErrorKind::invalid, 0, format("graph %u reads no changed memory", graph)};
  input_refusals_.emplace(graph, refusal);
  return success();
}

Status Saver::judge_inputs() {
  if (!found_) return Error{ErrorKind::state, 0, "inputs are judged after a SAVE was examined"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  const MemoryState& memory = found_->memory;
  for (size_t index = 0; index < watch_.changes().size(); ++index) {
    const InputWatch::Change& change = watch_.changes()[index];
    const std::vector<uint32_t> readers = readers_of(index);
    const auto refused =
        std::find_if(readers.begin(), readers.end(), [&](uint32_t graph) { return input_refusals_.contains(graph); });
    if (readers.empty()) continue;
    const foundry_range& range = memory.map.ranges()[change.range];
    std::string origin = origins_.of(range);
    if (!origin.empty()) origin = ", in memory made by " + origin;
    const std::string what = format("%s at %s (zone %s%s)", bytes_text(range.bytes).c_str(), hex(range.address).c_str(),
                                    memory.zone_of(range).name, origin.c_str());
    if (change.any_written()) {
      const uint64_t foreign = change.foreign();
      if (foreign == 0) continue;
      found_->report.warnings.push_back(format(
          "%s of %s changed after captures though no replay wrote them; graphs write other parts of it, so it is "
          "taken for scratch memory that they share with other code. If it is an input, register it as mutable",
          bytes_text(foreign).c_str(), what.c_str()));
      continue;
    }
    if (refused == readers.end()) continue;
    for (const uint32_t graph : readers) {
      leave_out(graph,
                format("it may read %s, which the program rewrote after captures and no graph writes: an input that is "
                       "not registered (%s). A restored graph would go on reading what SAVE saw last. Create it in a "
                       "phase and register it as mutable",
                       what.c_str(), input_refusals_.at(*refused).c_str()),
                found_->report);
    }
  }
  readers_.clear();
  input_refusals_.clear();
  watch_.changes().clear();
  light_state_.reset();
  copies_.reset();
  return success();
}

}  // namespace foundry::session
