#include "csrc/device/reference.h"

#include <algorithm>
#include <cstring>

namespace foundry::device {

std::vector<BlockSummary> block_summaries(std::span<const std::byte> data) {
  std::vector<BlockSummary> summaries;
  summaries.reserve((data.size() + kBlockBytes - 1) / kBlockBytes);
  while (!data.empty()) {
    const std::span<const std::byte> block = data.first(std::min<size_t>(data.size(), kBlockBytes));
    BlockHash hash{};
    for (size_t offset = 0; offset < block.size(); offset += 8) {
      uint64_t word = 0;
      std::memcpy(&word, block.data() + offset, std::min<size_t>(8, block.size() - offset));
      add_word(hash, word, offset / 8);
    }
    summaries.push_back(finished(hash, static_cast<uint32_t>(block.size())));
    data = data.subspan(block.size());
  }
  return summaries;
}

std::vector<PointerHit> pointer_scan(std::span<const std::byte> data, uint64_t address,
                                     std::span<const AddressRange> windows) {
  std::vector<PointerHit> hits;
  for (size_t offset = (8 - address % 8) % 8; offset + 8 <= data.size(); offset += 8) {
    uint64_t value = 0;
    std::memcpy(&value, data.data() + offset, sizeof value);
    const bool hit = std::ranges::any_of(
        windows, [value](const AddressRange& window) { return value >= window.begin && value < window.end; });
    if (hit) hits.push_back({address + offset, value});
  }
  return hits;
}

}  // namespace foundry::device
