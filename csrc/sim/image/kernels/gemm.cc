// Matrix products: a small tile, and a large one that needs more dynamic shared memory than the default limit.
#include <limits>

#include "csrc/sim/image/kernels/arithmetic.h"

namespace mini {
namespace {

using foundry::sim::SharedMemory;
using foundry::sim::SimLaunch;

// y[r, c] = x[r] . w[c]. A block computes one row and `block.x` columns; it stages the row (k floats) and, for a large
// tile, `Tile` columns in dynamic shared memory. Too little of it spoils the result, as it would on a GPU.
template <int Tile>
void gemm(const SimLaunch& launch, float* y, const float* x, const float* w, int n, int k) {
  const std::size_t needed = (std::size_t(k) + (Tile > 64 ? std::size_t(Tile) * 64 : 0)) * sizeof(float);
  const bool fits = launch.dynamic_shared_bytes >= needed;
  const SharedMemory shared(launch);
  for (std::uint32_t row = 0; row < launch.grid.x; ++row) {
    float* staged = shared.as<float>();
    if (fits) std::memcpy(staged, x + std::size_t(row) * k, std::size_t(k) * sizeof(float));
    const std::uint64_t columns = std::uint64_t{launch.grid.y} * launch.block.x;
    for (int column = 0; column < n && static_cast<std::uint64_t>(column) < columns; ++column) {
      y[std::size_t(row) * n + column] =
          fits ? dot(staged, w + std::size_t(column) * k, k) : std::numeric_limits<float>::quiet_NaN();
    }
  }
}

constexpr std::uint32_t kLargeTileRegisters = FOUNDRY_SIM_ARCH >= 90 ? 168 : 128;
}  // namespace
}  // namespace mini

FOUNDRY_SIM_KERNEL(_ZN4mini4gemmILi16EEEvPfPKfS3_ii, mini::gemm<16>, .max_threads_per_block = 256, .registers = 64);
FOUNDRY_SIM_KERNEL(_ZN4mini4gemmILi256EEEvPfPKfS3_ii, mini::gemm<256>, .max_threads_per_block = 256,
                   .registers = mini::kLargeTileRegisters);
