// Freed memory filled with patterns: what a graph computes must not depend on it.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/session/memory_keeper.h"
#include "csrc/session/memory_plan.h"
#include "csrc/session/process.h"

namespace foundry::session {

// Memory that one Poison may fill.
inline constexpr uint64_t kMostPoisonBytes = uint64_t{1} << 30;

// Fills of one set of freed ranges. Quarantined memory (and blocks that a framework has freed) is still mapped;
// released memory is mapped again for as long as this object lives, so that no replay can fault there. A context of the
// device must be current in every call, and nothing may be running. Not thread-safe.
class Poison {
 public:
  // The first pattern changes what is there as little as possible: kernels that do use the memory (as a table of
  // addresses, say) show it before the others, which would send them anywhere.
  static constexpr uint32_t kPatterns = 3;

  // `ranges`: indices into memory.map.ranges() of freed ranges.
  static Result<std::unique_ptr<Poison>> create(Process& process, const MemoryState& memory,
                                                const std::vector<uint32_t>& ranges);
  // Puts back what was there.
  ~Poison();
  Poison(const Poison&) = delete;
  Poison& operator=(const Poison&) = delete;

  Status fill(uint32_t pattern);
  // Whether the memory still holds the pattern that was filled last.
  Result<bool> untouched() const;
  // Puts back what was there and unmaps what was mapped for this; later calls do nothing.
  Status end();

 private:
  explicit Poison(Process& process) : process_(process), kept_(process.driver()) {}
  Status map_released(const foundry_range& range, uint64_t page);
  std::vector<std::byte> patterned(const MemoryKeeper::Piece& piece, uint32_t pattern) const;

  Process& process_;
  MemoryKeeper kept_;
  std::vector<uint64_t> mapped_;
  uint32_t pattern_ = 0;
  bool ended_ = false;
};

}  // namespace foundry::session
