// Kernels that stand for what a real engine's other images do: module variables, pointer tables, structs with padding.
#include <time.h>

#include "csrc/sim/image/kernels/arithmetic.h"

FOUNDRY_SIM_GLOBAL(int, step_counter, 0);
FOUNDRY_SIM_CONSTANT(float, logit_scale, 1.0f);

namespace mini {
namespace {

using foundry::sim::SimLaunch;

// y[r, g * n + c] = x[r] . table[g][c]: the weights are found through an array of device pointers. Grid: rows x groups.
void grouped_gemv(const SimLaunch& launch, float* y, const float* const* table, const float* x, int groups, int n,
                  int k) {
  for (std::uint32_t row = 0; row < launch.grid.x; ++row) {
    for (std::uint32_t group = 0; group < launch.grid.y && group < static_cast<std::uint32_t>(groups); ++group) {
      float* to = y + (std::size_t(row) * groups + group) * n;
      for (int c = 0; c < n; ++c) to[c] = dot(x + std::size_t(row) * k, table[group] + std::size_t(c) * k, k);
    }
  }
}

// Padding after `kind` and after `rows`, pointers in between.
struct ScaleArgs {
  char kind;  // 's': y = scale * y, 'b': y = scale * y + bias
  float* y;
  short rows;
  const float* bias;  // [width]
  float scale;
  int width;
};

// Multiplies by the module's constant as well. One block a row.
void scale_bias(const SimLaunch& launch, ScaleArgs args) {
  for (std::uint32_t row = 0; row < launch.grid.x && row < static_cast<std::uint32_t>(args.rows); ++row) {
    float* y = args.y + std::size_t(row) * args.width;
    for (int i = 0; i < args.width; ++i) {
      y[i] = y[i] * args.scale * logit_scale + (args.kind == 'b' ? args.bias[i] : 0.0f);
    }
  }
}

void count_step(const SimLaunch&, int* out) { *out = ++step_counter; }

void fill(const SimLaunch& launch, float* y, float value, int n) {
  const int count = covered(launch, n);
  for (int i = 0; i < count; ++i) y[i] = value;
}

void fill_words(const SimLaunch& launch, std::uint32_t* y, std::uint32_t value, std::uint64_t n) {
  const std::uint64_t threads = launch.grid.count() * launch.block.count();
  for (std::uint64_t i = 0; i < n && i < threads; ++i) y[i] = value;
}

// Writes what the launch looked like: architecture of this image, SMs, dynamic shared bytes, grid, block, cluster.
void probe(const SimLaunch& launch, int* out) {
  const foundry::sim::SimDim3 dims[3] = {launch.grid, launch.block, launch.cluster};
  int at = 0;
  out[at++] = FOUNDRY_SIM_ARCH;
  out[at++] = static_cast<int>(launch.sm_count);
  out[at++] = static_cast<int>(launch.dynamic_shared_bytes);
  for (const auto& dim : dims) {
    out[at++] = static_cast<int>(dim.x);
    out[at++] = static_cast<int>(dim.y);
    out[at++] = static_cast<int>(dim.z);
  }
}

// Keeps its stream busy, so that a missing dependency between streams shows.
void delay(const SimLaunch&, unsigned microseconds) {
  timespec left = {static_cast<time_t>(microseconds / 1000000), static_cast<long>(microseconds % 1000000) * 1000};
  while (nanosleep(&left, &left) != 0) {
  }
}
}  // namespace
}  // namespace mini

FOUNDRY_SIM_KERNEL(_ZN4mini12grouped_gemvEPfPKPKfS2_iii, mini::grouped_gemv, .registers = 48);
FOUNDRY_SIM_KERNEL(_ZN4mini10scale_biasENS_9ScaleArgsE, mini::scale_bias, .registers = 20);
FOUNDRY_SIM_KERNEL(count_step, mini::count_step, .registers = 8);
FOUNDRY_SIM_KERNEL(fill, mini::fill, .registers = 10);
FOUNDRY_SIM_KERNEL(fill_words, mini::fill_words, .registers = 10);
FOUNDRY_SIM_KERNEL(probe, mini::probe, .registers = 16);
FOUNDRY_SIM_KERNEL(delay, mini::delay, .registers = 8);
