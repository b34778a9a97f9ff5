// Inputs that nobody registered: memory outside the rebuilt zones that graphs read and the program rewrites.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/session/device_memory.h"
#include "csrc/session/memory_plan.h"

namespace foundry::session {

// What a watch looks at: ranges up to this size, and so much in all, the smallest first.
inline constexpr uint64_t kMostWatchedRange = uint64_t{64} << 20;
inline constexpr uint64_t kMostWatchedBytes = uint64_t{256} << 20;

// Remembers what memory held when graphs had just been captured, finds what holds something else at the end, and tells
// from replays what of that the graphs write themselves. A context of the device must be current in every call, and
// nothing may be running. Not thread-safe.
class InputWatch {
 public:
  // A range that changed. Bytes of `earlier`, `now` and `written` correspond.
  struct Change {
    uint32_t range = 0;  // index into the ranges of the memory that compare() was given
    std::vector<std::byte> earlier, now;
    std::vector<bool> written;  // by a replay that was noted; empty: none was

    // Bytes that changed and that no replay wrote.
    uint64_t foreign() const;
    bool any_written() const { return !written.empty(); }
  };

  // Adds what materialized ranges with content hold now, those that are not known yet; `again`: and what differs in
  // those that are.
  Status watch(DeviceMemory& device, const MemoryState& memory, bool again);
  // What became of them: ranges that are as they were then, and held something else at any time.
  Status compare(DeviceMemory& device, const MemoryState& memory);
  std::vector<Change>& changes() { return changes_; }

  // Before replays: ranges that changed hold what they held then, or at the comparison.
  Status put(DeviceMemory& device, const MemoryState& memory, bool earlier) const;
  // After them: bytes that hold something else now were written by them.
  Status note(DeviceMemory& device, const MemoryState& memory, bool earlier);

 private:
  // `other`: the last content that differed. What is rewritten may end as it began.
  struct Seen {
    uint64_t allocation = 0;  // its ordinal
    std::vector<std::byte> first, other;
  };
  // Whether it is still what was seen at its address.
  static bool is(const Seen& seen, const foundry_range& range) {
    return seen.allocation == range.ordinal && seen.first.size() == range.bytes;
  }
  void forget_others(const MemoryState& memory, const std::vector<uint32_t>& candidates);

  std::map<uint64_t, Seen> known_;  // by address
  uint64_t bytes_ = 0;              // of all contents
  std::vector<Change> changes_;
};

}  // namespace foundry::session
