#include "csrc/layout/expectations.h"

#include <algorithm>
#include <numeric>

#include "csrc/base/text.h"
#include "csrc/layout/pages.h"

namespace foundry::layout {

Result<Expectations> Expectations::build(std::span<const foundry_expectation> list, uint64_t granularity, uint64_t base,
                                         uint64_t used_end) {
  Expectations expected;
  expected.granularity_ = granularity;
  expected.list_.assign(list.begin(), list.end());
  expected.claimed_.assign(list.size(), 0);
  for (size_t i = 0; i < list.size(); ++i) {
    const foundry_expectation& one = list[i];
    const std::optional<uint64_t> pages = round_up(one.bytes, granularity);
    if (one.bytes == 0 || !pages || one.address % granularity != 0 || one.address < base || one.address > used_end ||
        *pages > used_end - one.address) {
      return Error{ErrorKind::corrupt, 0,
                   format("recorded allocation %zu (%llu bytes at %s) is not whole pages of %s between %s and %s", i,
                          static_cast<unsigned long long>(one.bytes), hex(one.address).c_str(),
                          bytes_text(granularity).c_str(), hex(base).c_str(), hex(used_end).c_str())};
    }
    expected.by_bytes_[one.bytes].indices.push_back(i);
    expected.by_pages_[*pages].indices.push_back(i);
  }
  std::vector<size_t> order(list.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return list[a].address < list[b].address; });
  for (size_t i = 1; i < order.size(); ++i) {
    const foundry_expectation& before = list[order[i - 1]];
    if (before.address + before.bytes > list[order[i]].address) {
      return Error{ErrorKind::corrupt, 0,
                   format("recorded allocations %zu and %zu overlap at %s", order[i - 1], order[i],
                          hex(list[order[i]].address).c_str())};
    }
  }
  return expected;
}

std::optional<size_t> Expectations::first(Queue& queue, uint64_t alignment) {
  while (queue.head < queue.indices.size() && claimed_[queue.indices[queue.head]] != 0) ++queue.head;
  for (size_t at = queue.head; at < queue.indices.size(); ++at) {
    const size_t index = queue.indices[at];
    if (claimed_[index] == 0 && (alignment == 0 || list_[index].address % alignment == 0)) return index;
  }
  return std::nullopt;
}

std::optional<size_t> Expectations::candidate(uint64_t bytes, uint64_t alignment) {
  if (const auto exact = by_bytes_.find(bytes); exact != by_bytes_.end()) {
    if (const auto index = first(exact->second, alignment)) return index;
  }
  const std::optional<uint64_t> pages = round_up(bytes, granularity_);
  if (!pages) return std::nullopt;
  const auto same = by_pages_.find(*pages);
  return same == by_pages_.end() ? std::nullopt : first(same->second, alignment);
}

void Expectations::claim_within(uint64_t begin, uint64_t end) {
  for (size_t i = 0; i < list_.size(); ++i) {
    if (list_[i].address < end && begin < list_[i].address + list_[i].bytes) claimed_[i] = 1;
  }
}

size_t Expectations::unclaimed(foundry_expectation* out, size_t capacity) const {
  size_t count = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (claimed_[i] != 0) continue;
    if (count < capacity) out[count] = list_[i];
    ++count;
  }
  return count;
}

}  // namespace foundry::layout
