// The recorded allocations of a rebuilt zone that LOAD expects to see again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/result.h"

namespace foundry::layout {

// Rule of placement (Zones::expect): first in first out among those of exactly the size asked for, else among those of
// the same number of pages; an address that does not have the alignment asked for is passed over, not used up.
class Expectations {
 public:
  // Checks a list from disk: whole pages of `granularity` within [base, used_end), without overlap.
  static Result<Expectations> build(std::span<const foundry_expectation> list, uint64_t granularity, uint64_t base,
                                    uint64_t used_end);

  // Index of the allocation that one of `bytes` takes; it stays available until claim().
  std::optional<size_t> candidate(uint64_t bytes, uint64_t alignment);
  void claim(size_t index) { claimed_[index] = 1; }
  // Memory was mapped at [begin, end) for recorded content: what was expected there is there.
  void claim_within(uint64_t begin, uint64_t end);

  uint64_t address(size_t index) const { return list_[index].address; }
  size_t unclaimed(foundry_expectation* out, size_t capacity) const;
  size_t size() const { return list_.size(); }

 private:
  struct Queue {
    std::vector<size_t> indices;
    size_t head = 0;  // everything before it is claimed
  };
  std::optional<size_t> first(Queue& queue, uint64_t alignment);

  uint64_t granularity_ = 1;
  std::vector<foundry_expectation> list_;
  std::vector<uint8_t> claimed_;
  boost::unordered_flat_map<uint64_t, Queue> by_bytes_, by_pages_;
};

}  // namespace foundry::layout
