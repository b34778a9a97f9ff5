#include "csrc/session/input_watch.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace foundry::session {
namespace {

// Ranges that SAVE keeps with their content, and that LOAD fills once.
std::vector<uint32_t> candidates(const MemoryState& memory) {
  std::vector<uint32_t> found;
  const auto& ranges = memory.map.ranges().ranges();
  for (uint32_t index = 0; index < ranges.size(); ++index) {
    if (ranges[index].bytes > kMostWatchedRange) continue;
    if (memory.map.is_materialized(index) && memory.has_content(ranges[index])) found.push_back(index);
  }
  return found;
}

Result<std::vector<std::byte>> read(DeviceMemory& device, uint64_t address, uint64_t bytes) {
  std::vector<std::byte> content;
  content.reserve(bytes);
  FOUNDRY_TRY(device.read(address, bytes, [&](uint64_t, std::span<const std::byte> piece) {
    content.insert(content.end(), piece.begin(), piece.end());
    return success();
  }));
  return content;
}

// Calls back for the bytes that differ. Most pieces are equal, which is quickly seen.
template <class Visit>
void visit_differences(std::span<const std::byte> a, std::span<const std::byte> b, Visit&& visit) {
  constexpr size_t kPiece = 4096;
  for (size_t begin = 0; begin < a.size(); begin += kPiece) {
    const size_t end = std::min(begin + kPiece, a.size());
    if (std::memcmp(a.data() + begin, b.data() + begin, end - begin) == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      if (a[i] != b[i]) visit(i);
    }
  }
}

}  // namespace

uint64_t InputWatch::Change::foreign() const {
  uint64_t count = 0;
  visit_differences(earlier, now, [&](size_t i) { count += written.empty() || !written[i] ? 1 : 0; });
  return count;
}

// What was freed, or divided anew: its content means nothing for what lies there next.
void InputWatch::forget_others(const MemoryState& memory, const std::vector<uint32_t>& candidates) {
  std::map<uint64_t, Seen> kept;
  bytes_ = 0;
  for (const uint32_t index : candidates) {
    const auto known = known_.find(memory.map.ranges()[index].address);
    if (known == known_.end() || !is(known->second, memory.map.ranges()[index])) continue;
    bytes_ += known->second.first.size() + known->second.other.size();
    kept.insert(known_.extract(known));
  }
  known_ = std::move(kept);
}

Status InputWatch::watch(DeviceMemory& device, const MemoryState& memory, bool again) {
  const auto& ranges = memory.map.ranges().ranges();
  std::vector<uint32_t> list = candidates(memory);
  std::stable_sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) { return ranges[a].bytes < ranges[b].bytes; });
  forget_others(memory, list);
  for (const uint32_t index : list) {
    const foundry_range& range = ranges[index];
    const uint64_t room = kMostWatchedBytes - std::min(kMostWatchedBytes, bytes_);
    if (const auto known = known_.find(range.address); known != known_.end()) {
      if (!again) continue;
      Seen& seen = known->second;
      FOUNDRY_ASSIGN(std::vector<std::byte> now, read(device, range.address, range.bytes));
      if (now == seen.first || (seen.other.empty() && range.bytes > room)) continue;
      if (seen.other.empty()) bytes_ += range.bytes;
      seen.other = std::move(now);
      continue;
    }
    if (range.bytes > room) continue;
    FOUNDRY_ASSIGN(std::vector<std::byte> now, read(device, range.address, range.bytes));
    known_[range.address] = {range.ordinal, std::move(now), {}};
    bytes_ += range.bytes;
  }
  return success();
}

Status InputWatch::compare(DeviceMemory& device, const MemoryState& memory) {
  changes_.clear();
  const auto& ranges = memory.map.ranges().ranges();
  for (const uint32_t index : candidates(memory)) {
    const auto known = known_.find(ranges[index].address);
    if (known == known_.end() || !is(known->second, ranges[index])) continue;
    FOUNDRY_ASSIGN(std::vector<std::byte> now, read(device, ranges[index].address, ranges[index].bytes));
    Seen& seen = known->second;
    std::vector<std::byte>& earlier = seen.first != now ? seen.first : seen.other;
    if (earlier.empty() || earlier == now) continue;
    changes_.push_back({index, std::move(earlier), std::move(now), {}});
  }
  known_.clear();
  bytes_ = 0;
  return success();
}

Status InputWatch::put(DeviceMemory& device, const MemoryState& memory, bool earlier) const {
  for (const Change& change : changes_) {
    FOUNDRY_TRY(device.write(memory.map.ranges()[change.range].address, earlier ? change.earlier : change.now));
  }
  return device.wait();
}

Status InputWatch::note(DeviceMemory& device, const MemoryState& memory, bool earlier) {
  for (Change& change : changes_) {
    const std::vector<std::byte>& put = earlier ? change.earlier : change.now;
    FOUNDRY_ASSIGN(const std::vector<std::byte> found,
                   read(device, memory.map.ranges()[change.range].address, put.size()));
    visit_differences(found, put, [&](size_t i) {
      if (change.written.empty()) change.written.resize(put.size());
      change.written[i] = true;
    });
  }
  return success();
}

}  // namespace foundry::session
