// Finds the words of memory that, taken as addresses, lie in given windows: conservative, every 8-byte aligned word.
#include <cstdint>

#include "csrc/device/pointer_scan.h"

using foundry::device::AddressRange;
using foundry::device::PointerHit;

// Row blockIdx.y of the grid scans ranges[blockIdx.y], with any number of blocks of any size. Hits come in no order; at
// most `capacity` are written, and `found` (zero before the launch) counts all of them, so that the host can ask again.
extern "C" __global__ void foundry_pointer_scan(const AddressRange* ranges, uint32_t range_count,
                                                const AddressRange* windows, uint32_t window_count, PointerHit* hits,
                                                uint64_t capacity, unsigned long long* found) {
  if (blockIdx.y >= range_count) return;
  const uint64_t begin = (ranges[blockIdx.y].begin + 7) / 8 * 8;
  const uint64_t end = ranges[blockIdx.y].end / 8 * 8;
  const uint64_t words = end > begin ? (end - begin) / 8 : 0;
  const auto* data = reinterpret_cast<const uint64_t*>(begin);
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
    const uint64_t value = data[i];
    bool hit = false;
    for (uint32_t w = 0; w < window_count && !hit; ++w) hit = value >= windows[w].begin && value < windows[w].end;
    if (!hit) continue;
    const unsigned long long place = atomicAdd(found, 1ull);
    if (place < capacity) hits[place] = PointerHit{begin + 8 * i, value};
  }
}
