// Zero flag and fingerprint of every 64 KiB block of a range, so that zero and equal blocks need not cross the bus.
#include <cstdint>

#include "csrc/device/block_hash.h"

namespace {

using foundry::device::BlockHash;
using foundry::device::BlockSummary;
using foundry::device::kBlockBytes;

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr unsigned kMostWarps = 32;

__device__ BlockHash warp_sum(BlockHash hash) {
  for (int step = 16; step > 0; step /= 2) {
    BlockHash other;
    other.first = __shfl_down_sync(kFullWarp, hash.first, step);
    other.second = __shfl_down_sync(kFullWarp, hash.second, step);
    other.any = __shfl_down_sync(kFullWarp, hash.any, step);
    merge(hash, other);
  }
  return hash;
}

}  // namespace

// `data` is aligned to 16 bytes; `out` has one entry for each started block. Any grid; whole warps, at most 1024
// threads.
extern "C" __global__ void foundry_block_summary(const unsigned char* data, uint64_t bytes, BlockSummary* out) {
  __shared__ BlockHash parts[kMostWarps];
  const uint64_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  for (uint64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const unsigned char* begin = data + block * kBlockBytes;
    const uint64_t left = bytes - block * kBlockBytes;
    const uint32_t here = static_cast<uint32_t>(left < kBlockBytes ? left : kBlockBytes);

    BlockHash hash{};
    const auto* pairs = reinterpret_cast<const ulonglong2*>(begin);
    for (uint32_t pair = threadIdx.x; pair < here / 16; pair += blockDim.x) {
      const ulonglong2 words = pairs[pair];
      add_word(hash, words.x, 2 * pair);
      add_word(hash, words.y, 2 * pair + 1);
    }
    // The rest of a last block: up to two words, the second one short.
    const uint32_t rest = here / 16 * 16;
    if (threadIdx.x < 2 && rest + 8 * threadIdx.x < here) {
      uint64_t word = 0;
      for (uint32_t i = 0; i < 8 && rest + 8 * threadIdx.x + i < here; ++i) {
        word |= static_cast<uint64_t>(begin[rest + 8 * threadIdx.x + i]) << (8 * i);
      }
      add_word(hash, word, rest / 8 + threadIdx.x);
    }

    hash = warp_sum(hash);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = hash;
    __syncthreads();
    if (threadIdx.x < 32) {
      hash = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : BlockHash{};
      hash = warp_sum(hash);
      if (threadIdx.x == 0) out[block] = finished(hash, here);
    }
    __syncthreads();
  }
}
