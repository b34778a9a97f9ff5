// Decode attention over a paged KV cache, split along the keys as FlashAttention 2 does: partial results go to scratch
// memory that the caller allocates per call, a second kernel combines them.
#include <cmath>
#include <limits>

#include "csrc/sim/image/kernels/arithmetic.h"

namespace mini {
namespace {

using foundry::sim::SimLaunch;

// Passed by value: pointers, and padding after the last field.
struct AttentionParams {
  const float* q;     // rows of q_stride floats
  const float* keys;  // [slot][kv_heads][head_dim]
  const float* values;
  const int* block_table;  // [batch][max_blocks]
  const int* lengths;      // [batch]; 0 is padding
  float* out;              // [batch][q_heads][head_dim]
  float* partial_out;      // [splits][batch][q_heads][rounded_dim]; null without splits
  float* partial_lse;      // [splits][batch][q_heads]
  int batch, q_heads, kv_heads, head_dim, rounded_dim;
  int q_stride, page, max_blocks;
  int splits, split_block;  // a split covers whole blocks of split_block keys
  float scale;
  bool causal;
};

// One query head against keys [begin, end): weighted mean of the values and the log of the sum of weights.
float attend(const AttentionParams& p, int row, int head, int begin, int end, float* out) {
  const std::size_t width = std::size_t(p.kv_heads) * p.head_dim;
  const std::size_t offset = std::size_t(head / (p.q_heads / p.kv_heads)) * p.head_dim;
  const float* q = p.q + std::size_t(row) * p.q_stride + std::size_t(head) * p.head_dim;
  const int* pages = p.block_table + std::size_t(row) * p.max_blocks;
  for (int i = 0; i < p.head_dim; ++i) out[i] = 0;
  float largest = -std::numeric_limits<float>::infinity();
  float sum = 0;
  for (int key = begin; key < end; ++key) {
    const std::size_t slot = std::size_t(pages[key / p.page]) * p.page + key % p.page;
    const float score = dot(q, p.keys + slot * width + offset, p.head_dim) * p.scale;
    const float rescale = score > largest ? std::exp(largest - score) : 1.0f;
    largest = score > largest ? score : largest;
    const float weight = std::exp(score - largest);
    sum = sum * rescale + weight;
    const float* value = p.values + slot * width + offset;
    for (int i = 0; i < p.head_dim; ++i) out[i] = out[i] * rescale + weight * value[i];
  }
  if (sum == 0) return -std::numeric_limits<float>::infinity();
  for (int i = 0; i < p.head_dim; ++i) out[i] /= sum;
  return largest + std::log(sum);
}

// Grid: (1, splits, batch * kv_heads).
template <bool Split>
void attention(const SimLaunch& launch, AttentionParams p) {
  const int group = p.q_heads / p.kv_heads;
  for (std::uint32_t z = 0; z < launch.grid.z; ++z) {
    const int row = static_cast<int>(z) / p.kv_heads;
    const int length = p.lengths[row];
    const int blocks = (length + p.split_block - 1) / p.split_block;
    const int share = Split ? (blocks + p.splits - 1) / p.splits : blocks;
    for (std::uint32_t y = 0; y < launch.grid.y; ++y) {
      const int split = static_cast<int>(y);
      const int begin = split * share * p.split_block;
      const int end = (split + 1) * share * p.split_block < length ? (split + 1) * share * p.split_block : length;
      for (int i = 0; i < group; ++i) {
        const int head = static_cast<int>(z) % p.kv_heads * group + i;
        const std::size_t at = std::size_t(row) * p.q_heads + head;
        if constexpr (Split) {
          const std::size_t part = std::size_t(split) * p.batch * p.q_heads + at;
          p.partial_lse[part] = attend(p, row, head, begin, end, p.partial_out + part * p.rounded_dim);
        } else {
          attend(p, row, head, begin, end, p.out + at * p.head_dim);
        }
      }
    }
  }
}

// Grid: batch * q_heads blocks.
void attention_combine(const SimLaunch& launch, AttentionParams p) {
  const std::size_t stride = std::size_t(p.batch) * p.q_heads;
  for (std::uint32_t at = 0; at < launch.grid.x; ++at) {
    float largest = -std::numeric_limits<float>::infinity();
    for (int s = 0; s < p.splits; ++s) largest = std::fmax(largest, p.partial_lse[s * stride + at]);
    float* out = p.out + std::size_t(at) * p.head_dim;
    for (int i = 0; i < p.head_dim; ++i) out[i] = 0;
    if (largest == -std::numeric_limits<float>::infinity()) continue;
    float sum = 0;
    for (int s = 0; s < p.splits; ++s) {
      const std::size_t part = s * stride + at;
      const float weight = std::exp(p.partial_lse[part] - largest);
      sum += weight;
      if (weight == 0) continue;
      for (int i = 0; i < p.head_dim; ++i) out[i] += weight * p.partial_out[part * p.rounded_dim + i];
    }
    for (int i = 0; i < p.head_dim; ++i) out[i] /= sum;
  }
}

constexpr std::uint32_t kRegisters = FOUNDRY_SIM_ARCH >= 90 ? 128 : 96;
}  // namespace
}  // namespace mini

FOUNDRY_SIM_KERNEL(_ZN4mini9attentionILb0EEEvNS_15AttentionParamsE, mini::attention<false>,
                   .max_threads_per_block = 128, .registers = mini::kRegisters);
FOUNDRY_SIM_KERNEL(_ZN4mini9attentionILb1EEEvNS_15AttentionParamsE, mini::attention<true>, .max_threads_per_block = 128,
                   .registers = mini::kRegisters);
FOUNDRY_SIM_KERNEL(_ZN4mini17attention_combineENS_15AttentionParamsE, mini::attention_combine, .registers = 40);
