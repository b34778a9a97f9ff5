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

Status InputWatch::watch(DeviceMemory& device, const MemoryState& memory, bool again) {
  const auto& ranges = memory.map.ranges().ranges();
  std::vector<uint32_t> list = candidates(memory);
  std::stable_sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) { return ranges[a].bytes < ranges[b].bytes; });
  for (const uint32_t index : list) {
    const foundry_range& range = ranges[index];
    const auto known = known_.find(range.address);
    if (known != known_.end() && known->second.first.size() == range.bytes) {
      if (!again) continue;
      FOUNDRY_ASSIGN(std::vector<std::byte> now, read(device, range.address, range.bytes));
      if (now != known->second.first) known->second.other = std::move(now);
      continue;
    }
    if (known != known_.end()) {
      bytes_ -= known->second.first.size();  // a framework has divided its memory anew
      known_.erase(known);
    }
    if (range.bytes > kMostWatchedBytes - bytes_) continue;
    FOUNDRY_ASSIGN(known_[range.address].first, read(device, range.address, range.bytes));
    bytes_ += range.bytes;
  }
  return success();
}

Status InputWatch::compare(DeviceMemory& device, const MemoryState& memory) {
  changes_.clear();
  const auto& ranges = memory.map.ranges().ranges();
  for (const uint32_t index : candidates(memory)) {
    const auto known = known_.find(ranges[index].address);
    if (known == known_.end() || known->second.first.size() != ranges[index].bytes) continue;
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
