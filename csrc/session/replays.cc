// Replays at the end of SAVE: proofs that words are padding, and golden runs. The framework replays, this keeps the
// books.
#include <algorithm>
#include <set>

#include "csrc/base/text.h"
#include "csrc/session/elements.h"
#include "csrc/session/golden.h"
#include "csrc/session/saver.h"

namespace foundry::session {

Result<std::vector<TensorInfo>> Saver::outputs_of(uint32_t graph) const {
  const auto outputs = outputs_.find(graph);
  if (outputs == outputs_.end()) return Error{ErrorKind::invalid, 0, format("graph %u has no outputs", graph)};
  std::vector<TensorInfo> tensors;
  for (const uint32_t index : outputs->second.tensors) tensors.push_back(tensors_.tensors()[index]);
  return tensors;
}

// Materialized content that graphs reach, and module variables.
Result<std::vector<MemoryPart>> Saver::kept_parts() {
  SaveReport unused;  // write() looks again, and then it is reported
  FOUNDRY_ASSIGN(const std::vector<uint32_t> ranges, reached(found_->memory, found_->audit, unused));
  std::vector<MemoryPart> parts;
  for (const uint32_t index : ranges) {
    const foundry_range& range = found_->memory.map.ranges()[index];
    if (!found_->memory.map.is_materialized(index) || !found_->memory.has_content(range)) continue;
    parts.push_back({range.address, range.bytes, false});
  }
  for (const archive::ModuleGlobalRecord& global : snapshotter_.tables().module_globals) {
    if (global.bytes != 0) parts.push_back({global.address, global.bytes, false});
  }
  return parts;
}

Status Saver::keep_state() {
  if (kept_state_) return success();
  if (!found_) return Error{ErrorKind::state, 0, "the state of a SAVE is kept after it was examined"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  inputs_ = mutable_memory(tensors_.tensors());
  auto inputs = std::make_unique<MemoryKeeper>(process_.driver());
  FOUNDRY_ASSIGN(lost_inputs_, inputs->keep(inputs_));

  FOUNDRY_ASSIGN(std::vector<MemoryPart> parts, kept_parts());
  auto state = std::make_unique<MemoryKeeper>(process_.driver());
  FOUNDRY_ASSIGN([[maybe_unused]] const auto too_much, state->keep(std::move(parts)));
  kept_inputs_ = std::move(inputs);
  kept_state_ = std::move(state);
  return success();
}

Status Saver::restore_state() {
  if (!kept_state_) return Error{ErrorKind::state, 0, "no state was kept"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  FOUNDRY_TRY(kept_state_->restore());
  FOUNDRY_TRY(kept_inputs_->restore());
  FOUNDRY_ASSIGN(DeviceMemory * device, copies());
  return capture_inputs_.put_back(*device);
}

Status Saver::put_capture_inputs(uint32_t graph) {
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  FOUNDRY_ASSIGN(DeviceMemory * device, copies());
  return capture_inputs_.put(*device, graph);
}

Result<std::string> Saver::hash_outputs(DeviceMemory& device, uint32_t graph, uint64_t& bytes) {
  FOUNDRY_ASSIGN(const std::vector<TensorInfo> outputs, outputs_of(graph));
  std::string text;
  for (const TensorInfo& tensor : outputs) {
    FOUNDRY_ASSIGN(const std::vector<std::byte> elements, read_elements(device, tensor));
    bytes += elements.size();
    text += archive::hex(archive::hash(elements));
  }
  return text;
}

Result<std::string> Saver::fingerprint(uint32_t graph) {
  if (!kept_inputs_) return Error{ErrorKind::state, 0, "no state was kept"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  uint64_t bytes = 0;
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(process_.driver()));
  FOUNDRY_ASSIGN(const std::string text, hash_outputs(device, graph, bytes));
  if (bytes == 0 && kept_inputs_->pieces().empty()) return std::string();
  FOUNDRY_ASSIGN(const archive::Hash128 inputs, kept_inputs_->fingerprint());
  return text + archive::hex(inputs);
}

Status Saver::expose(uint32_t graph) {
  if (!found_ || !found_->doubts.contains(graph))
    return Error{ErrorKind::invalid, 0, format("graph %u is not in doubt", graph)};
  if (poison_) return Error{ErrorKind::state, 0, "another graph is being tested"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  std::set<uint32_t> ranges;
  for (const size_t index : found_->doubts.at(graph)) {
    const graph::Finding& finding = found_->audit.findings[index];
    ranges.insert(found_->memory.map.range_of(snapshotter_.tables().pointers[finding.pointer].value));
  }
  FOUNDRY_ASSIGN(poison_, Poison::create(process_, found_->memory, {ranges.begin(), ranges.end()}));
  return success();
}

Status Saver::poison(uint32_t pattern) {
  if (!poison_ || pattern >= Poison::kPatterns) {
    return Error{ErrorKind::state, 0, format("no graph is being tested, or there is no pattern %u", pattern)};
  }
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  return poison_->fill(pattern);
}

Result<bool> Saver::untouched() const {
  if (!poison_) return Error{ErrorKind::state, 0, "nothing is poisoned"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  return poison_->untouched();
}

Status Saver::heal() {
  if (!poison_) return success();
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  const Status ended = poison_->end();
  poison_.reset();
  return ended;
}

Status Saver::prepare_golden() {
  FOUNDRY_TRY(restore_state());
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(process_.driver()));
  FOUNDRY_TRY(fill_large_inputs(device, inputs_));
  return device.wait();
}

Status Saver::observe_golden(uint32_t graph, uint64_t seed, uint64_t offset) {
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  FOUNDRY_ASSIGN(const std::vector<TensorInfo> outputs, outputs_of(graph));
  if (!golden_) golden_ = std::make_unique<GoldenRecorder>(process_.driver());
  const graph::GraphTables& tables = snapshotter_.tables();
  FOUNDRY_ASSIGN(const std::span<const CaptureInputs::Piece> inputs, capture_inputs_.of(graph));
  return golden_->observe(graph, std::string(tables.view().text(tables.graphs[graph].name)), outputs,
                          outputs_.at(graph).tensors, inputs, seed, offset);
}

Result<uint64_t> Saver::write_golden(archive::Publication& staging, uint32_t rank) {
  if (!golden_) return Error{ErrorKind::state, 0, "there are no golden runs to write"};
  FOUNDRY_TRY(restore_state());
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(process_.driver()));
  uint64_t lost = 0;
  for (const MemoryPart& part : lost_inputs_) {
    FOUNDRY_TRY(device.fill(part.address, part.bytes, 0));
    lost += part.bytes;
  }
  FOUNDRY_TRY(device.wait());
  FOUNDRY_ASSIGN([[maybe_unused]] const archive::WrittenFile written,
                 golden_->write(staging.directory(), format("rank_%u/golden.fdry", rank), inputs_, *kept_inputs_));
  return lost;
}

}  // namespace foundry::session
