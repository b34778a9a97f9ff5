#include "csrc/session/input_watch.h"

#include <algorithm>
#include <utility>

#include "csrc/session/device_memory.h"

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

}  // namespace

uint64_t InputWatch::Change::foreign() const {
  uint64_t count = 0;
  for (size_t i = 0; i < now.size(); ++i) count += earlier[i] != now[i] && !written[i] ? 1 : 0;
  return count;
}

bool InputWatch::Change::any_written() const {
  return std::find(written.begin(), written.end(), true) != written.end();
}

Result<std::vector<std::byte>> InputWatch::read(uint64_t address, uint64_t bytes) const {
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(*driver_));
  std::vector<std::byte> content;
  content.reserve(bytes);
  FOUNDRY_TRY(device.read(address, bytes, [&](uint64_t, std::span<const std::byte> piece) {
    content.insert(content.end(), piece.begin(), piece.end());
    return success();
  }));
  return content;
}

Status InputWatch::watch(const MemoryState& memory) {
  const auto& ranges = memory.map.ranges().ranges();
  std::vector<uint32_t> list = candidates(memory);
  std::stable_sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) { return ranges[a].bytes < ranges[b].bytes; });
  for (const uint32_t index : list) {
    const foundry_range& range = ranges[index];
    const auto known = known_.find(range.address);
    if (known != known_.end()) {
      if (known->second.size() == range.bytes) continue;
      bytes_ -= known->second.size();  // a framework has divided its memory anew
      known_.erase(known);
    }
    if (range.bytes > kMostWatchedBytes - bytes_) break;
    FOUNDRY_ASSIGN(known_[range.address], read(range.address, range.bytes));
    bytes_ += range.bytes;
  }
  return success();
}

Status InputWatch::compare(const MemoryState& memory) {
  changes_.clear();
  const auto& ranges = memory.map.ranges().ranges();
  for (const uint32_t index : candidates(memory)) {
    const auto known = known_.find(ranges[index].address);
    if (known == known_.end() || known->second.size() != ranges[index].bytes) continue;
    FOUNDRY_ASSIGN(std::vector<std::byte> now, read(ranges[index].address, ranges[index].bytes));
    if (now == known->second) continue;
    std::vector<bool> written(now.size());
    changes_.push_back({index, known->second, std::move(now), std::move(written)});
  }
  known_.clear();
  bytes_ = 0;
  return success();
}

Status InputWatch::put(const MemoryState& memory, bool earlier) {
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(*driver_));
  for (const Change& change : changes_) {
    FOUNDRY_TRY(device.write(memory.map.ranges()[change.range].address, earlier ? change.earlier : change.now));
  }
  return device.wait();
}

Status InputWatch::note(const MemoryState& memory, bool earlier) {
  for (Change& change : changes_) {
    const std::vector<std::byte>& put = earlier ? change.earlier : change.now;
    FOUNDRY_ASSIGN(const std::vector<std::byte> found, read(memory.map.ranges()[change.range].address, put.size()));
    for (size_t i = 0; i < put.size(); ++i) {
      if (found[i] != put[i]) change.written[i] = true;
    }
  }
  return success();
}

}  // namespace foundry::session
