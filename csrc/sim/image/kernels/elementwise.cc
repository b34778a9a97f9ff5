// Kernels of the mini model that work element by element or row by row.
#include <cmath>

#include "csrc/sim/image/kernels/arithmetic.h"

namespace mini {
namespace {

using foundry::sim::SimLaunch;

// out[r] = tokens[ids[r]] + places[positions[r]], one block a row.
void embedding(const SimLaunch& launch, float* out, const float* tokens, const float* places, const int* ids,
               const int* positions, int width) {
  for (std::uint32_t row = 0; row < launch.grid.x; ++row) {
    const float* token = tokens + std::size_t(ids[row]) * width;
    const float* place = places + std::size_t(positions[row]) * width;
    for (int i = 0; i < width; ++i) out[std::size_t(row) * width + i] = token[i] + place[i];
  }
}

void add(const SimLaunch& launch, float* y, const float* x, int n) {
  const int count = covered(launch, n);
  for (int i = 0; i < count; ++i) y[i] += x[i];
}

// y[r] = silu(x[r, :width]) * x[r, width:], one block a row.
void silu_mul(const SimLaunch& launch, float* y, const float* x, int width) {
  for (std::uint32_t row = 0; row < launch.grid.x; ++row) {
    const float* gate = x + std::size_t(row) * 2 * width;
    const float* up = gate + width;
    for (int i = 0; i < width; ++i) {
      y[std::size_t(row) * width + i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    }
  }
}

struct KvShape {
  int kv_heads, head_dim;
  int row_width;  // of the fused q, k, v row
  int key_at;     // element offset of k in it; v follows k
};

// Writes k and v of each row into the cache slot of that row; a negative slot is padding. One block a row.
void write_kv(const SimLaunch& launch, float* keys, float* values, const float* qkv, const int* slots, KvShape shape) {
  const std::size_t width = std::size_t(shape.kv_heads) * shape.head_dim;
  for (std::uint32_t row = 0; row < launch.grid.x; ++row) {
    if (slots[row] < 0) continue;
    const float* key = qkv + std::size_t(row) * shape.row_width + shape.key_at;
    std::memcpy(keys + std::size_t(slots[row]) * width, key, width * sizeof(float));
    std::memcpy(values + std::size_t(slots[row]) * width, key + width, width * sizeof(float));
  }
}
}  // namespace
}  // namespace mini

FOUNDRY_SIM_KERNEL(_ZN4mini9embeddingEPfPKfS2_PKiS4_i, mini::embedding, .registers = 24);
FOUNDRY_SIM_KERNEL(_ZN4mini3addEPfPKfi, mini::add, .registers = 16);
FOUNDRY_SIM_KERNEL(_ZN4mini8silu_mulEPfPKfi, mini::silu_mul, .registers = 28);
FOUNDRY_SIM_KERNEL(_ZN4mini8write_kvEPfS0_PKfPKiNS_7KvShapeE, mini::write_kv, .registers = 26);
