// The fingerprint of a 64 KiB block: one definition for the device kernel and its CPU version. Sums of mixed words, so
// that threads may take the words in any order; the position is part of what is mixed. Equal content gives equal
// fingerprints on every device; it is no defence against content that was made to collide.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define FOUNDRY_DEVICE __host__ __device__ __forceinline__
#else
#define FOUNDRY_DEVICE inline
#endif

namespace foundry::device {

constexpr uint64_t kBlockBytes = 65536;

struct BlockSummary {
  uint64_t fingerprint[2];
  uint32_t is_zero;  // 1: every byte is zero
  uint32_t bytes;    // of the range in this block; less than kBlockBytes in the last one only
};
static_assert(sizeof(BlockSummary) == 24, "the kernel writes these, the host reads them");

struct BlockHash {
  uint64_t first, second, any;
};

FOUNDRY_DEVICE uint64_t mixed(uint64_t x, uint64_t multiplier1, uint64_t multiplier2) {
  x ^= x >> 32;
  x *= multiplier1;
  x ^= x >> 29;
  x *= multiplier2;
  return x ^ (x >> 32);
}

// Adds the 8-byte word with number `index` of the block. A short last word is filled with zeros.
FOUNDRY_DEVICE void add_word(BlockHash& hash, uint64_t word, uint64_t index) {
  hash.first += mixed(word ^ ((index + 1) * 0x9e3779b97f4a7c15ull), 0xff51afd7ed558ccdull, 0xc4ceb9fe1a85ec53ull);
  hash.second += mixed(word + ((index + 1) * 0xd6e8feb86659fd93ull), 0xbf58476d1ce4e5b9ull, 0x94d049bb133111ebull);
  hash.any |= word;
}

FOUNDRY_DEVICE void merge(BlockHash& into, const BlockHash& from) {
  into.first += from.first;
  into.second += from.second;
  into.any |= from.any;
}

FOUNDRY_DEVICE BlockSummary finished(const BlockHash& hash, uint32_t bytes) {
  BlockSummary summary;
  summary.fingerprint[0] = mixed(hash.first + bytes, 0xbf58476d1ce4e5b9ull, 0x94d049bb133111ebull);
  summary.fingerprint[1] = mixed(hash.second ^ bytes, 0xff51afd7ed558ccdull, 0xc4ceb9fe1a85ec53ull);
  summary.is_zero = hash.any == 0 ? 1u : 0u;
  summary.bytes = bytes;
  return summary;
}

}  // namespace foundry::device
