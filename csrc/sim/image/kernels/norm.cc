// RMS norm, as one block a row and as a cluster of blocks a row.
#include <cmath>
#include "csrc/sim/image/kernels/arithmetic.h"

namespace mini {
namespace {

using foundry::sim::SimLaunch;

void scale_slice(float* y, const float* x, const float* weight, int from, int to, float factor) {
  for (int i = from; i < to; ++i) y[i] = x[i] * factor * weight[i];
}

void rms_norm(const SimLaunch& launch, float* y, const float* x, const float* weight, int width, float epsilon) {
  for (std::uint32_t row = 0; row < launch.grid.x; ++row) {
    const float* from = x + std::size_t(row) * width;
    const float factor = 1.0f / std::sqrt(dot(from, from, width) / static_cast<float>(width) + epsilon);
    scale_slice(y + std::size_t(row) * width, from, weight, 0, width, factor);
  }
}

// Two blocks a row. They add up their halves through the cluster's shared memory; without the cluster attribute a block
// knows its own half only, and the result is visibly wrong, as it would be on a GPU.
void rms_norm_cluster(const SimLaunch& launch, float* y, const float* x, const float* weight, int width,
                      float epsilon) {
  for (std::uint32_t block = 0; block < launch.grid.x; ++block) {
    const std::size_t row = block / 2;
    const float* from = x + row * width;
    float squares = 0;
    for (std::uint32_t peer = 0; peer < 2; ++peer) {
      if (peer != block % 2 && launch.cluster.x < 2) continue;
      const int begin = peer == 0 ? 0 : width / 2;
      const int end = peer == 0 ? width / 2 : width;
      squares += dot(from + begin, from + begin, end - begin);
    }
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(width) + epsilon);
    scale_slice(y + row * width, from, weight, block % 2 == 0 ? 0 : width / 2, block % 2 == 0 ? width / 2 : width,
                factor);
  }
}
}  // namespace
}  // namespace mini

FOUNDRY_SIM_KERNEL(_ZN4mini8rms_normEPfPKfS2_if, mini::rms_norm, .static_shared_bytes = 128, .registers = 32);
FOUNDRY_SIM_KERNEL(_ZN4mini16rms_norm_clusterEPfPKfS2_if, mini::rms_norm_cluster, .static_shared_bytes = 128,
                   .registers = 32);
