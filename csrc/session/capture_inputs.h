// What small tensors of integers held when each graph was captured: replays that SAVE makes find the same there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/session/device_memory.h"
#include "csrc/session/memory_keeper.h"
#include "csrc/session/tensors.h"

namespace foundry::session {

// Largest tensor that is kept, and what all graphs together may take on the host.
inline constexpr uint64_t kMostCaptureInputBytes = uint64_t{1} << 20;
inline constexpr uint64_t kMostCaptureInputsBytes = uint64_t{1} << 30;

// Graphs share input buffers, and what these hold is laid out for the graph that runs next: lengths, tables of blocks,
// how attention is scheduled. With those of another graph a kernel may go anywhere (FlashAttention 3 does). A context
// of the device must be current, and nothing may be running. Not thread-safe.
class CaptureInputs {
 public:
  struct Piece {
    uint64_t address = 0;
    std::shared_ptr<const std::vector<std::byte>> bytes;  // shared by graphs that found the same
  };

  explicit CaptureInputs(uint64_t most = kMostCaptureInputsBytes) : most_(most) {}

  // Whether it is mutable, small and holds no floating-point numbers.
  static bool takes(const TensorInfo& tensor);
  // Right after a capture, before any replay: what those of `tensors` hold that are such ones is that graph's, which is
  // named when it has a number.
  Status take(DeviceMemory& device, std::span<const TensorInfo> tensors);
  void keep(uint32_t graph);
  // Before a replay of it. `out_of_memory` if there was no room for its inputs.
  Status put(DeviceMemory& device, uint32_t graph);
  // After replays: what all graphs' inputs held before the first put(), also where they are part of a tensor that is
  // too large to be put back whole.
  Status put_back(DeviceMemory& device) const;
  Result<std::span<const Piece>> of(uint32_t graph) const;
  // Forgets what does not lie in one of these (ascending, apart): memory that a tensor had earlier may be another's
  // now.
  void keep_within(std::span<const MemoryPart> parts);

 private:
  Status remember(DeviceMemory& device);

  uint64_t most_;
  std::map<uint64_t, std::shared_ptr<const std::vector<std::byte>>> last_;
  std::optional<std::vector<Piece>> taken_ = std::vector<Piece>();  // nothing: there was no room
  std::map<uint32_t, std::vector<Piece>> kept_;
  std::set<uint32_t> lacking_;                // graphs without room
  std::optional<std::vector<Piece>> before_;  // the first put()
  uint64_t bytes_ = 0;
};

}  // namespace foundry::session
