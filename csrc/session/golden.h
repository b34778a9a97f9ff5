// Golden runs: what a graph computed natively from known inputs, and whether it still does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/archive/reader.h"
#include "csrc/archive/writer.h"
#include "csrc/base/result.h"
#include "csrc/session/capture_inputs.h"
#include "csrc/session/device_memory.h"
#include "csrc/session/loader.h"
#include "csrc/session/memory_keeper.h"
#include "csrc/session/tensors.h"

namespace foundry::session {

// Mutable memory up to this size (tensors that overlap count as one) is stored with its content; what is larger
// (caches) is filled before every golden run.
inline constexpr uint64_t kMostStoredInputBytes = uint64_t{16} << 20;
// Outputs that differ between native replays are stored up to this size.
inline constexpr uint64_t kMostValueBytes = uint64_t{16} << 20;
// A small positive number in every floating-point format; other memory is filled with zeros.
inline constexpr uint8_t kFloatingFill = 0x3c;
// A few replays do not show the whole spread: a restored graph may differ by this many times as much.
inline constexpr double kSpreadAllowance = 2.0;

// Fills the mutable memory that is too large to be stored.
Status fill_large_inputs(DeviceMemory& device, const std::vector<MemoryPart>& inputs);

// SAVE: collects replays. The outputs of one graph are observed one replay after the other.
class GoldenRecorder {
 public:
  explicit GoldenRecorder(const driver::Driver& driver) : driver_(&driver) {}

  // The graph has just been replayed with these `inputs` of its capture; `tensors` are its outputs. The first call for
  // a graph begins its run.
  Status observe(uint32_t graph, const std::string& name, const std::vector<TensorInfo>& outputs,
                 const std::vector<uint32_t>& tensors, std::span<const CaptureInputs::Piece> inputs, uint64_t seed,
                 uint64_t offset);
  // Writes golden.fdry. `kept` has the content of the stored ones among `inputs`.
  Result<archive::WrittenFile> write(int directory, const std::string& name, const std::vector<MemoryPart>& inputs,
                                     const MemoryKeeper& kept);

 private:
  struct Run {
    archive::GoldenRunRecord record{};
    std::string name;
    std::vector<CaptureInputs::Piece> inputs;
  };
  void close_run();
  Status write_run_inputs(archive::FileWriter& file) const;

  const driver::Driver* driver_;
  std::vector<Run> runs_;
  std::vector<archive::GoldenOutputRecord> outputs_;
  std::vector<std::byte> values_;
  // Of the run that was begun last:
  std::vector<std::vector<std::byte>> reference_;
  std::vector<std::optional<double>> spread_;
};

struct GoldenRun {
  uint32_t index = 0;  // of the run
  uint32_t graph = 0;  // of the graph
  std::string name;
  uint32_t replays = 0;
  uint64_t seed = 0, offset = 0;
};

// rank_<n>/golden.fdry, checked by itself and against the archive. `inventory` is what foundry.json lists.
Result<archive::File> open_golden(const ArchiveData& archive, uint32_t rank,
                                  const std::vector<archive::FileDescription>& inventory);
std::vector<GoldenRun> golden_runs(const archive::File& golden);

// How one output compares with the golden run.
struct GoldenVerdict {
  std::string verdict;  // "equal", "within spread", "differs", "not comparable"
  double difference = 0, spread = 0;
  std::string dtype;
  uint64_t bytes = 0;
};

// LOAD: compares restored graphs. Steps: begin, per run prepare, (launch), compare, at last end.
class GoldenCheck {
 public:
  // `loader` must outlive the object.
  static Result<std::unique_ptr<GoldenCheck>> open(Loader& loader, std::shared_ptr<const ArchiveData> archive,
                                                   uint32_t rank,
                                                   const std::vector<archive::FileDescription>& inventory);

  std::vector<GoldenRun> runs() const { return golden_runs(file_); }
  // Keeps what the runs change. Returns the bytes of mutable memory that are too much to be kept: end() leaves zeros
  // there.
  Result<uint64_t> begin();
  // Memory as it was before that golden run: materialized content, module variables, inputs.
  Status prepare(uint32_t run);
  Result<std::vector<GoldenVerdict>> compare(uint32_t run);
  // Everything is as it was before begin(), except materialized memory, which is as the archive has it.
  Status end();

 private:
  GoldenCheck(Loader& loader, std::shared_ptr<const ArchiveData> archive, archive::File file)
      : loader_(loader),
        archive_(std::move(archive)),
        file_(std::move(file)),
        tensors_(read_tensors(archive_->memory())),
        kept_(loader.process().driver()) {}

  Loader& loader_;
  std::shared_ptr<const ArchiveData> archive_;
  archive::File file_;
  std::vector<TensorInfo> tensors_;
  MemoryKeeper kept_;
  std::vector<MemoryPart> lost_;
};

}  // namespace foundry::session
