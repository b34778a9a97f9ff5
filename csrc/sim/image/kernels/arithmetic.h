// Arithmetic that several kernels share: sums in one fixed order, so that equal input gives equal bits.
#pragma once

#include "csrc/sim/image/kernel.h"

namespace mini {

inline float dot(const float* a, const float* b, int n) {
  float sum[4] = {0, 0, 0, 0};  // four chains: the host overlaps them
  int i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int j = 0; j < 4; ++j) sum[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Elements that a one-dimensional launch covers, at most `n`.
inline int covered(const foundry::sim::SimLaunch& launch, int n) {
  const std::uint64_t threads = launch.grid.count() * launch.block.count();
  return threads < static_cast<std::uint64_t>(n) ? static_cast<int>(threads) : n;
}

}  // namespace mini
