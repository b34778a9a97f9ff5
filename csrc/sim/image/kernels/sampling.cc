// Token choice: argmax, and sampling with random numbers whose seed and offset come through two device words.
#include <cmath>

#include "csrc/sim/image/kernels/arithmetic.h"

namespace mini {
namespace {

using foundry::sim::SimLaunch;

// The state that an engine passes by value. Outside a capture it holds seed and offset; in a captured launch it points
// to the words that are written before every replay, and `offset_in_graph` tells the launches of one graph apart.
struct PhiloxState {
  union {
    std::uint64_t value;
    const std::uint64_t* pointer;
  } seed, offset;
  std::uint32_t offset_in_graph;
  bool captured;
};

// Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
struct Philox {
  std::uint32_t word[4];

  Philox(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t offset)
      : word{static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32),
             static_cast<std::uint32_t>(subsequence), static_cast<std::uint32_t>(subsequence >> 32)} {
    std::uint32_t key[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xd2511f53} * word[0];
      const std::uint64_t b = std::uint64_t{0xcd9e8d57} * word[2];
      const std::uint32_t next[4] = {
          static_cast<std::uint32_t>(b >> 32) ^ word[1] ^ key[0], static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ word[3] ^ key[1], static_cast<std::uint32_t>(a)};
      std::memcpy(word, next, sizeof word);
      key[0] += 0x9e3779b9;
      key[1] += 0xbb67ae85;
    }
  }
};

std::uint64_t seed_of(const PhiloxState& s) { return s.captured ? *s.seed.pointer : s.seed.value; }
std::uint64_t offset_of(const PhiloxState& s) {
  return s.captured ? *s.offset.pointer + s.offset_in_graph : s.offset.value;
}

void argmax(const SimLaunch& launch, int* out, const float* logits, int vocabulary) {
  for (std::uint32_t row = 0; row < launch.grid.x; ++row) {
    const float* from = logits + std::size_t(row) * vocabulary;
    int best = 0;
    for (int i = 1; i < vocabulary; ++i) {
      if (from[i] > from[best]) best = i;
    }
    out[row] = best;
  }
}

// Draws from softmax(logits / temperature) by the Gumbel-max trick; consumes four random words an element.
void sample(const SimLaunch& launch, int* out, const float* logits, int vocabulary, float temperature,
            PhiloxState state) {
  const std::uint64_t seed = seed_of(state), offset = offset_of(state);
  for (std::uint32_t row = 0; row < launch.grid.x; ++row) {
    const float* from = logits + std::size_t(row) * vocabulary;
    int best = 0;
    float best_score = 0;
    for (int i = 0; i < vocabulary; ++i) {
      const Philox random(seed, std::uint64_t{row} * static_cast<std::uint64_t>(vocabulary) + i, offset / 4);
      const float uniform = (static_cast<float>(random.word[0] >> 8) + 0.5f) * 0x1p-24f;
      const float score = from[i] / temperature - std::log(-std::log(uniform));
      if (i == 0 || score > best_score) {
        best = i;
        best_score = score;
      }
    }
    out[row] = best;
  }
}

void random_bits(const SimLaunch& launch, std::uint32_t* out, std::uint64_t n, PhiloxState state) {
  const std::uint64_t threads = launch.grid.count() * launch.block.count();
  const std::uint64_t seed = seed_of(state), offset = offset_of(state);
  for (std::uint64_t i = 0; i < n && i < threads; ++i) out[i] = Philox(seed, i, offset / 4).word[0];
}
}  // namespace
}  // namespace mini

FOUNDRY_SIM_KERNEL(_ZN4mini6argmaxEPiPKfi, mini::argmax, .registers = 20);
FOUNDRY_SIM_KERNEL(_ZN4mini6sampleEPiPKfifNS_11PhiloxStateE, mini::sample, .registers = 44);
FOUNDRY_SIM_KERNEL(_ZN4mini11random_bitsEPjmNS_11PhiloxStateE, mini::random_bits, .registers = 40);
