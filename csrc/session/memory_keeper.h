// Device memory on the host, to be put back: replays that only test something must leave no trace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/archive/hash.h"
#include "csrc/base/result.h"
#include "csrc/driver/driver.h"
#include "csrc/session/device_memory.h"
#include "csrc/session/tensors.h"

namespace foundry::session {

// Host memory that one keeper takes at most.
inline constexpr uint64_t kMostKeptBytes = uint64_t{1} << 30;

struct MemoryPart {
  uint64_t address = 0, bytes = 0;
  bool floating = false;  // holds nothing but floating-point numbers
};

// The memory of mutable tensors by address; parts that overlap are one.
std::vector<MemoryPart> mutable_memory(std::span<const TensorInfo> tensors);

// A context of the device must be current in every call, and nothing may be running. Not thread-safe.
class MemoryKeeper {
 public:
  struct Piece {
    MemoryPart part;
    std::vector<std::byte> bytes;
  };

  explicit MemoryKeeper(const driver::Driver& driver) : driver_(&driver) {}

  // Adds what `parts` hold now, the smallest first, as far as `most` bytes in all go; returns what was left out.
  Result<std::vector<MemoryPart>> keep(std::vector<MemoryPart> parts, uint64_t most = kMostKeptBytes);
  Status restore() const;
  Status restore(DeviceMemory& device) const;
  // Of what the pieces hold now.
  Result<archive::Hash128> fingerprint() const;
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  const driver::Driver* driver_;
  std::vector<Piece> pieces_;
  uint64_t bytes_ = 0;
};

}  // namespace foundry::session
