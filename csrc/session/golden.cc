#include "csrc/session/golden.h"

#include <algorithm>
#include <bit>
#include <map>

#include "csrc/archive/content.h"
#include "csrc/archive/validate.h"
#include "csrc/base/text.h"
#include "csrc/session/elements.h"

namespace foundry::session {

using archive::Comparison;
using archive::Section;

Status fill_large_inputs(DeviceMemory& device, const std::vector<MemoryPart>& inputs) {
  for (const MemoryPart& input : inputs) {
    if (input.bytes <= kMostStoredInputBytes) continue;
    FOUNDRY_TRY(device.fill(input.address, input.bytes, input.floating ? kFloatingFill : 0));
  }
  return success();
}

// ---- SAVE

Status GoldenRecorder::observe(uint32_t graph, const std::string& name, const std::vector<TensorInfo>& outputs,
                               const std::vector<uint32_t>& tensors, std::span<const CaptureInputs::Piece> inputs,
                               uint64_t seed, uint64_t offset) {
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(*driver_));
  const bool first = runs_.empty() || runs_.back().record.graph != graph;
  if (first) {
    close_run();
    Run run;
    run.name = name;
    run.inputs.assign(inputs.begin(), inputs.end());
    run.record.graph = graph;
    run.record.first_output = static_cast<uint32_t>(outputs_.size());
    run.record.output_count = static_cast<uint32_t>(tensors.size());
    run.record.seed = seed;
    run.record.offset = offset;
    runs_.push_back(std::move(run));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    FOUNDRY_ASSIGN(std::vector<std::byte> elements, read_elements(device, outputs[i]));
    if (first) {
      archive::GoldenOutputRecord record{};
      record.hash = archive::hash(elements);
      record.bytes = elements.size();
      record.tensor = tensors[i];
      outputs_.push_back(record);
      reference_.push_back(std::move(elements));
      spread_.emplace_back(0.0);
    } else if (spread_[i] && elements != reference_[i]) {
      const auto difference = largest_difference(outputs[i].dtype, reference_[i], elements);
      spread_[i] = difference ? std::optional(std::max(*spread_[i], *difference)) : std::nullopt;
      // Equal numbers of different bits (zeros of both signs) are a spread all the same.
      outputs_[runs_.back().record.first_output + i].comparison = static_cast<uint32_t>(Comparison::spread);
    }
  }
  ++runs_.back().record.replays;
  return success();
}

void GoldenRecorder::close_run() {
  for (size_t i = 0; i < reference_.size(); ++i) {
    archive::GoldenOutputRecord& record = outputs_[runs_.back().record.first_output + i];
    if (record.comparison == 0) {
      record.comparison = static_cast<uint32_t>(Comparison::bitwise);
    } else if (!spread_[i] || record.bytes > kMostValueBytes) {
      record.comparison = static_cast<uint32_t>(Comparison::none);
    } else {
      record.spread = std::bit_cast<uint64_t>(*spread_[i]);
      record.values = values_.size();
      values_.insert(values_.end(), reference_[i].begin(), reference_[i].end());
    }
  }
  reference_.clear();
  spread_.clear();
}

// What several runs found alike is stored once.
Status GoldenRecorder::write_run_inputs(archive::FileWriter& file) const {
  std::vector<archive::GoldenRunInputRecord> records;
  std::vector<std::byte> content;
  std::map<const std::vector<std::byte>*, uint64_t> offsets;
  for (uint32_t run = 0; run < runs_.size(); ++run) {
    for (const CaptureInputs::Piece& piece : runs_[run].inputs) {
      const auto [place, fresh] = offsets.emplace(piece.bytes.get(), content.size());
      if (fresh) content.insert(content.end(), piece.bytes->begin(), piece.bytes->end());
      records.push_back({piece.address, piece.bytes->size(), place->second, run, 0});
    }
  }
  FOUNDRY_TRY(file.put<Section::golden_run_inputs>(records));
  return file.put_raw(Section::golden_run_content, content);
}

Result<archive::WrittenFile> GoldenRecorder::write(int directory, const std::string& name,
                                                   const std::vector<MemoryPart>& inputs, const MemoryKeeper& kept) {
  close_run();
  FOUNDRY_ASSIGN(archive::FileWriter file, archive::FileWriter::create(directory, name, archive::FileKind::golden));
  std::vector<archive::GoldenRunRecord> runs;
  for (Run& run : runs_) {
    run.record.name = file.strings().add(run.name);
    runs.push_back(run.record);
  }
  FOUNDRY_TRY(file.put<Section::golden_runs>(runs));
  FOUNDRY_TRY(file.put<Section::golden_outputs>(outputs_));
  FOUNDRY_TRY(file.put_raw(Section::golden_values, values_));
  FOUNDRY_TRY(write_run_inputs(file));

  std::vector<archive::GoldenInputRecord> records;
  FOUNDRY_ASSIGN(archive::ContentWriter content,
                 archive::ContentWriter::create(file, {}, {Section::golden_content, Section::golden_blocks}));
  for (const MemoryPart& input : inputs) {
    const bool large = input.bytes > kMostStoredInputBytes;
    const uint32_t fill = input.floating ? kFloatingFill : 0;
    records.push_back({input.address, input.bytes, large ? fill : archive::kNone, 0});
    if (large) continue;
    const auto piece =
        std::find_if(kept.pieces().begin(), kept.pieces().end(), [&](const MemoryKeeper::Piece& candidate) {
          return candidate.part.address == input.address && candidate.part.bytes == input.bytes;
        });
    if (piece == kept.pieces().end()) {
      return Error{ErrorKind::out_of_memory, 0,
                   "mutable tensors are too many for golden runs: they do not fit into the "
                   "host memory that these may take"};
    }
    FOUNDRY_TRY(content.add(input.address, piece->bytes));
  }
  FOUNDRY_ASSIGN([[maybe_unused]] const archive::ContentStatistics statistics, content.finish());
  FOUNDRY_TRY(file.put<Section::golden_inputs>(records));
  return file.finish();
}

// ---- LOAD

Result<archive::File> open_golden(const ArchiveData& archive, uint32_t rank,
                                  const std::vector<archive::FileDescription>& inventory) {
  FOUNDRY_ASSIGN(archive::File file, open_listed(archive.directory(), format("rank_%u/golden.fdry", rank),
                                                 archive::FileKind::golden, inventory));
  FOUNDRY_TRY(archive::validate_golden_with(file, archive.graphs_file(), archive.memory()));
  return file;
}

std::vector<GoldenRun> golden_runs(const archive::File& golden) {
  std::vector<GoldenRun> runs;
  for (const archive::GoldenRunRecord& record : golden.section<Section::golden_runs>()) {
    GoldenRun run;
    run.index = static_cast<uint32_t>(runs.size());
    run.graph = record.graph;
    run.name = golden.view(record.name);
    run.replays = record.replays;
    run.seed = record.seed;
    run.offset = record.offset;
    runs.push_back(std::move(run));
  }
  return runs;
}

Result<std::unique_ptr<GoldenCheck>> GoldenCheck::open(Loader& loader, std::shared_ptr<const ArchiveData> archive,
                                                       uint32_t rank,
                                                       const std::vector<archive::FileDescription>& inventory) {
  FOUNDRY_ASSIGN(archive::File file, open_golden(*archive, rank, inventory));
  return std::unique_ptr<GoldenCheck>(new GoldenCheck(loader, std::move(archive), std::move(file)));
}

Result<uint64_t> GoldenCheck::begin() {
  driver::ScopedContext scope(loader_.process().driver(), loader_.context());
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(loader_.process().driver(), cuCtxSynchronize);
  std::vector<MemoryPart> parts;
  for (const archive::GoldenInputRecord& input : file_.section<Section::golden_inputs>()) {
    parts.push_back({input.address, input.bytes, false});
  }
  const auto globals = archive_->graphs().module_globals;
  std::vector<MemoryPart> variables;
  for (uint32_t index = 0; index < globals.size(); ++index) {
    FOUNDRY_ASSIGN(const uint64_t address, loader_.module_global(index));
    if (globals[index].bytes != 0) variables.push_back({address, globals[index].bytes, false});
  }
  FOUNDRY_ASSIGN(const auto unkept, kept_.keep(std::move(variables)));
  if (!unkept.empty())
    return Error{ErrorKind::out_of_memory, 0, "module variables do not fit into the host memory for tests"};
  FOUNDRY_ASSIGN(lost_, kept_.keep(std::move(parts)));
  uint64_t bytes = 0;
  for (const MemoryPart& part : lost_) bytes += part.bytes;
  return bytes;
}

Status GoldenCheck::prepare(uint32_t run) {
  driver::ScopedContext scope(loader_.process().driver(), loader_.context());
  FOUNDRY_TRY(scope.status());
  FOUNDRY_TRY(loader_.refill());
  FOUNDRY_TRY(kept_.restore());  // module variables
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(loader_.process().driver()));
  for (const archive::GoldenInputRecord& input : file_.section<Section::golden_inputs>()) {
    FOUNDRY_TRY(
        device.fill(input.address, input.bytes, input.fill == archive::kNone ? 0 : static_cast<uint8_t>(input.fill)));
  }
  uint64_t bytes = 0;
  FOUNDRY_TRY(write_content(device, file_.section<Section::golden_blocks>(), file_.raw_section(Section::golden_content),
                            bytes));
  FOUNDRY_TRY(device.wait());  // run inputs lie in what was just written
  const auto content = file_.raw_section(Section::golden_run_content);
  for (const archive::GoldenRunInputRecord& input : file_.section<Section::golden_run_inputs>()) {
    if (input.run == run) FOUNDRY_TRY(device.write(input.address, content.subspan(input.content, input.bytes)));
  }
  return device.wait();
}

Result<std::vector<GoldenVerdict>> GoldenCheck::compare(uint32_t run) {
  const auto runs = file_.section<Section::golden_runs>();
  if (run >= runs.size()) return Error{ErrorKind::invalid, 0, format("there is no golden run %u", run)};
  driver::ScopedContext scope(loader_.process().driver(), loader_.context());
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(loader_.process().driver(), cuCtxSynchronize);
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(loader_.process().driver()));
  const auto values = file_.raw_section(Section::golden_values);
  std::vector<GoldenVerdict> verdicts;
  for (const archive::GoldenOutputRecord& output :
       file_.section<Section::golden_outputs>().subspan(runs[run].first_output, runs[run].output_count)) {
    const TensorInfo& tensor = tensors_[output.tensor];
    FOUNDRY_ASSIGN(const std::vector<std::byte> elements, read_elements(device, tensor));
    GoldenVerdict verdict;
    verdict.dtype = tensor.dtype;
    verdict.bytes = output.bytes;
    verdict.spread = std::bit_cast<double>(output.spread);
    if (elements.size() == output.bytes && archive::hash(elements) == output.hash) {
      verdict.verdict = "equal";
    } else if (output.comparison == static_cast<uint32_t>(Comparison::none)) {
      verdict.verdict = "not comparable";
    } else if (output.comparison == static_cast<uint32_t>(Comparison::bitwise)) {
      verdict.verdict = "differs";
    } else {
      const auto difference = largest_difference(tensor.dtype, values.subspan(output.values, output.bytes), elements);
      verdict.difference = difference.value_or(0);
      verdict.verdict = difference && *difference <= kSpreadAllowance * verdict.spread ? "within spread" : "differs";
    }
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

Status GoldenCheck::end() {
  driver::ScopedContext scope(loader_.process().driver(), loader_.context());
  FOUNDRY_TRY(scope.status());
  FOUNDRY_TRY(loader_.refill());
  FOUNDRY_TRY(kept_.restore());
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(loader_.process().driver()));
  for (const MemoryPart& part : lost_) FOUNDRY_TRY(device.fill(part.address, part.bytes, 0));
  return device.wait();
}

}  // namespace foundry::session
