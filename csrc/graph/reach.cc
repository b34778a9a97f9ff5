#include "csrc/graph/reach.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "csrc/archive/records.h"
#include "csrc/base/text.h"

namespace foundry::graph {
namespace {

using archive::kNone;

bool is_live(const foundry_range& range) {
  return range.state == FOUNDRY_RANGE_LIVE || range.state == FOUNDRY_RANGE_MATERIALIZED;
}

}  // namespace

Result<ReachResult> reach(const MemoryMap& memory, std::span<const uint32_t> roots, const ScanMemory& scan,
                          const ReachOptions& options) {
  ReachResult result;
  std::vector<bool> reached(memory.ranges().size(), false);
  std::set<uint32_t> open;  // lowest address first, whatever the order in which pointers were found
  const auto add = [&](uint32_t range) {
    if (reached[range]) return;
    reached[range] = true;
    open.insert(range);
  };
  for (const uint32_t root : roots) add(root);

  const auto look_at = [&](uint32_t from, uint64_t holder, uint64_t value) {
    if (!memory.near_zones(value)) return;
    const uint32_t to = memory.range_of(value);
    if (to == kNone || !is_live(memory.ranges()[to])) {
      if (to != kNone || memory.zone_of(value) != kNone) ++result.dangling_words;
      return;
    }
    if (memory.is_materialized(to)) {
      add(to);
      return;
    }
    const uint32_t anchor = memory.anchor_of(value);
    result.rebuilt.push_back({holder, value, from, to, anchor == kNone ? kNone : memory.anchors()[anchor].index});
  };

  while (!open.empty()) {
    const uint32_t from = *open.begin();
    open.erase(open.begin());
    const foundry_range& range = memory.ranges()[from];
    // Only what was asked for: the rest of the last page holds nobody's data. Pointers are aligned words.
    const uint64_t begin = (range.address + 7) / 8 * 8;
    const uint64_t end = (range.address + range.bytes) / 8 * 8;
    if (begin >= end) continue;
    if (end - begin > options.max_bytes - result.scanned_bytes) {
      return Error{ErrorKind::out_of_memory, 0,
                   format("graphs reach more than %s of memory outside the rebuilt zones (allocation %llu of %s at %s "
                          "is among it)",
                          bytes_text(options.max_bytes).c_str(), static_cast<unsigned long long>(range.ordinal),
                          bytes_text(range.bytes).c_str(), hex(range.address).c_str())};
    }
    FOUNDRY_TRY(scan(begin, end, [&](uint64_t holder, uint64_t value) { look_at(from, holder, value); }));
    result.scanned_bytes += end - begin;
  }

  for (uint32_t i = 0; i < reached.size(); ++i) {
    if (reached[i]) result.ranges.push_back(i);
  }
  std::sort(result.rebuilt.begin(), result.rebuilt.end(),
            [](const StoredPointer& a, const StoredPointer& b) { return a.holder < b.holder; });
  return result;
}

Result<ReachResult> reach(const MemoryMap& memory, std::span<const uint32_t> roots, const ReadMemory& read,
                          const ReachOptions& options) {
  const uint64_t chunk = std::max<uint64_t>(options.chunk_bytes / 8 * 8, 8);
  std::vector<std::byte> buffer;
  const ScanMemory scan = [&](uint64_t begin, uint64_t end, const FoundWord& found) -> Status {
    for (uint64_t at = begin; at < end; at += buffer.size()) {
      buffer.resize(std::min(chunk, end - at));
      FOUNDRY_TRY(read(at, buffer));
      for (uint64_t offset = 0; offset < buffer.size(); offset += 8) {
        uint64_t value = 0;
        std::memcpy(&value, buffer.data() + offset, sizeof value);
        if (memory.near_zones(value)) found(at + offset, value);
      }
    }
    return success();
  };
  return reach(memory, roots, scan, options);
}

}  // namespace foundry::graph
