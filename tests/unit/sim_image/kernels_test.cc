// The example kernels compute what they say: checked against plain formulas, and for what launch attributes decide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/sim_image/support.h"

namespace foundry::sim {
namespace {

using testing::Each;
using testing::ElementsAre;

SimLaunch launch_of(std::uint32_t x, std::uint32_t y = 1, std::uint32_t z = 1, std::uint32_t threads = 128) {
  SimLaunch launch;
  launch.grid = {x, y, z};
  launch.block = {threads, 1, 1};
  return launch;
}

std::vector<float> ramp(int n, float from, float step) {
  std::vector<float> out(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = from + step * static_cast<float>(i % 17);
  return out;
}

class Kernels : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(decode_.image, nullptr) << decode_.text;
    ASSERT_NE(assorted_.image, nullptr) << assorted_.text;
  }
  const Bytes decode_bytes_ = file_of("DECODE"), assorted_bytes_ = file_of("ASSORTED");
  const Attempt decode_ = load(decode_bytes_, 90), assorted_ = load(assorted_bytes_, 90);
};

TEST_F(Kernels, GemmMultipliesAndNeedsItsSharedMemory) {
  const std::vector<float> x = ramp(2 * 8, -1, 0.25f), w = ramp(3 * 8, 0.5f, -0.125f);
  std::vector<float> y(6);
  for (const auto& [name, shared] :
       {std::pair{"_ZN4mini4gemmILi16EEEvPfPKfS3_ii", 8 * 4}, {"_ZN4mini4gemmILi256EEEvPfPKfS3_ii", (8 + 16384) * 4}}) {
    auto launch = launch_of(2);
    launch.dynamic_shared_bytes = static_cast<std::uint32_t>(shared);
    run(*decode_.image, name, launch, y.data(), x.data(), w.data(), 3, 8);
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < 3; ++c) {
        float expected = 0;
        for (int k = 0; k < 8; ++k) expected += x[r * 8 + k] * w[c * 8 + k];
        EXPECT_NEAR(y[r * 3 + c], expected, 1e-5f);
      }
    }
    launch.dynamic_shared_bytes -= 4;
    run(*decode_.image, name, launch, y.data(), x.data(), w.data(), 3, 8);
    EXPECT_THAT(y, Each(testing::IsNan())) << name;
  }
  EXPECT_GT((8 + 16384) * 4, 48 << 10) << "the large tile is beyond the default limit";
}

TEST_F(Kernels, ClusterNormIsWrongWithoutItsCluster) {
  const std::vector<float> x = ramp(2 * 8, -1, 0.25f), weight = ramp(8, 1, 0.5f);
  std::vector<float> plain(16), clustered(16);
  run(*decode_.image, "_ZN4mini8rms_normEPfPKfS2_if", launch_of(2), plain.data(), x.data(), weight.data(), 8, 1e-6f);
  auto launch = launch_of(4);
  launch.cluster = {2, 1, 1};
  const char* name = "_ZN4mini16rms_norm_clusterEPfPKfS2_if";
  run(*decode_.image, name, launch, clustered.data(), x.data(), weight.data(), 8, 1e-6f);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(plain[i], clustered[i], 1e-5f);
  launch.cluster = {1, 1, 1};
  run(*decode_.image, name, launch, clustered.data(), x.data(), weight.data(), 8, 1e-6f);
  EXPECT_GT(std::fabs(plain[0] - clustered[0]), 0.1f);
}

struct AttentionParams {  // as in attention.cc
  const float *q, *keys, *values;
  const int *block_table, *lengths;
  float *out, *partial_out, *partial_lse;
  int batch, q_heads, kv_heads, head_dim, rounded_dim, q_stride, page, max_blocks, splits, split_block;
  float scale;
  bool causal;
};

TEST_F(Kernels, SplitAttentionEqualsUnsplitAndAPlainSoftmax) {
  constexpr int kBatch = 2, kQ = 4, kKv = 2, kDim = 4, kPage = 4, kPages = 4, kSplits = 3, kRounded = 32;
  const std::vector<float> q = ramp(kBatch * kQ * kDim, -1, 0.125f);
  const std::vector<float> keys = ramp(8 * kPage * kKv * kDim, -0.5f, 0.0625f);
  const std::vector<float> values = ramp(8 * kPage * kKv * kDim, 0.25f, 0.375f);
  const std::vector<int> table = {5, 1, 7, 2, 0, 3, 6, 4}, lengths = {14, 5};
  std::vector<float> unsplit(kBatch * kQ * kDim), split(kBatch * kQ * kDim);
  std::vector<float> partial_out(kSplits * kBatch * kQ * kRounded), partial_lse(kSplits * kBatch * kQ);
  AttentionParams p{
      q.data(), keys.data(), values.data(), table.data(), lengths.data(), unsplit.data(), nullptr, nullptr,
      kBatch,   kQ,          kKv,           kDim,         kRounded,       kQ * kDim,      kPage,   kPages,
      1,        kPage,       0.5f,          true};
  run(*decode_.image, "_ZN4mini9attentionILb0EEEvNS_15AttentionParamsE", launch_of(1, 1, kBatch * kKv), p);
  p.out = split.data();
  p.partial_out = partial_out.data();
  p.partial_lse = partial_lse.data();
  p.splits = kSplits;
  run(*decode_.image, "_ZN4mini9attentionILb1EEEvNS_15AttentionParamsE", launch_of(1, kSplits, kBatch * kKv), p);
  run(*decode_.image, "_ZN4mini17attention_combineENS_15AttentionParamsE", launch_of(kBatch * kQ), p);

  for (int b = 0; b < kBatch; ++b) {
    for (int h = 0; h < kQ; ++h) {
      const auto at = [&](const std::vector<float>& cache, int key, int i) {
        return cache[((table[b * kPages + key / kPage] * kPage + key % kPage) * kKv + h / 2) * kDim + i];
      };
      std::vector<double> expected(kDim);
      double sum = 0;
      for (int key = 0; key < lengths[b]; ++key) {
        double score = 0;
        for (int i = 0; i < kDim; ++i) score += q[(b * kQ + h) * kDim + i] * at(keys, key, i);
        const double weight = std::exp(score * 0.5);
        sum += weight;
        for (int i = 0; i < kDim; ++i) expected[i] += weight * at(values, key, i);
      }
      for (int i = 0; i < kDim; ++i) {
        EXPECT_NEAR(unsplit[(b * kQ + h) * kDim + i], expected[i] / sum, 1e-4);
        EXPECT_NEAR(split[(b * kQ + h) * kDim + i], expected[i] / sum, 1e-4);
      }
    }
  }
}

TEST_F(Kernels, PaddingRowsWriteNoCacheAndAttendToNothing) {
  const std::vector<float> qkv = ramp(2 * 6, 1, 1);
  std::vector<float> keys(8), values(8);
  const int slots[] = {3, -1};
  struct {
    int kv_heads, head_dim, row_width, key_at;
  } shape{1, 2, 6, 2};
  run(*decode_.image, "_ZN4mini8write_kvEPfS0_PKfPKiNS_7KvShapeE", launch_of(2), keys.data(), values.data(), qkv.data(),
      +slots, shape);
  EXPECT_THAT(keys, ElementsAre(0, 0, 0, 0, 0, 0, 3, 4));
  EXPECT_THAT(values, ElementsAre(0, 0, 0, 0, 0, 0, 5, 6));
}

struct PhiloxState {  // as in sampling.cc
  std::uint64_t seed, offset;
  std::uint32_t offset_in_graph;
  bool captured;
};

TEST_F(Kernels, RandomNumbersThroughDeviceWordsEqualThoseByValue) {
  constexpr std::uint64_t kCount = 64;
  const auto bits = [&](PhiloxState state) {
    std::vector<std::uint32_t> out(kCount);
    run(*decode_.image, "_ZN4mini11random_bitsEPjmNS_11PhiloxStateE", launch_of(1), out.data(), kCount, state);
    return out;
  };
  const std::uint64_t seed = 42, offset = 8;
  const PhiloxState words{reinterpret_cast<std::uint64_t>(&seed), reinterpret_cast<std::uint64_t>(&offset), 4, true};
  EXPECT_EQ(bits(words), bits({42, 12, 0, false}));
  EXPECT_NE(bits(words), bits({42, 8, 0, false}));
  EXPECT_NE(bits(words), bits({43, 12, 0, false}));
  // The known answer of Philox 4x32-10 for an all-zero counter and key.
  EXPECT_EQ(bits({0, 0, 0, false})[0], 0x6627e8d5u);
}

TEST_F(Kernels, SamplingIsArgmaxAtLowTemperature) {
  const std::vector<float> logits = {0, 3, 1, 2, 9, 8, 7, 6};
  std::vector<int> best(2), drawn(2);
  run(*decode_.image, "_ZN4mini6argmaxEPiPKfi", launch_of(2), best.data(), logits.data(), 4);
  EXPECT_THAT(best, ElementsAre(1, 0));
  run(*decode_.image, "_ZN4mini6sampleEPiPKfifNS_11PhiloxStateE", launch_of(2), drawn.data(), logits.data(), 4, 0.001f,
      PhiloxState{1, 0, 0, false});
  EXPECT_EQ(drawn, best);
}

TEST_F(Kernels, PointerTableIsReadFromMemory) {
  const std::vector<float> first = {1, 0, 0, 1}, second = {2, 2, 3, 3}, x = {5, 7};
  const float* table[] = {first.data(), second.data()};
  std::vector<float> y(4);
  run(*assorted_.image, "_ZN4mini12grouped_gemvEPfPKPKfS2_iii", launch_of(1, 2), y.data(), +table, x.data(), 2, 2, 2);
  EXPECT_THAT(y, ElementsAre(5, 7, 24, 36));
}

TEST_F(Kernels, StructWithPaddingAndTheModulesConstant) {
  std::vector<float> y = {1, 2, 3, 4};
  const std::vector<float> bias = {10, 20};
  struct {
    char kind;
    float* y;
    short rows;
    const float* bias;
    float scale;
    int width;
  } args{'b', y.data(), 2, bias.data(), 2, 2};
  *static_cast<float*>(global_named(*assorted_.image, "logit_scale")->address) = 3;
  run(*assorted_.image, "_ZN4mini10scale_biasENS_9ScaleArgsE", launch_of(2), args);
  EXPECT_THAT(y, ElementsAre(16, 32, 28, 44));
}

TEST_F(Kernels, FillCoversItsThreadsOnly) {
  std::vector<float> y(10);
  run(*assorted_.image, "fill", launch_of(2, 1, 1, 3), y.data(), 2.5f, 10);
  EXPECT_THAT(y, ElementsAre(2.5f, 2.5f, 2.5f, 2.5f, 2.5f, 2.5f, 0, 0, 0, 0));
  std::vector<std::uint32_t> words(4);
  run(*assorted_.image, "fill_words", launch_of(1), words.data(), 7u, std::uint64_t{3});
  EXPECT_THAT(words, ElementsAre(7u, 7u, 7u, 0u));
}

TEST_F(Kernels, ProbeSeesTheLaunch) {
  auto launch = launch_of(1, 2, 3, 4);
  launch.cluster = {2, 1, 1};
  launch.sm_count = 132;
  launch.dynamic_shared_bytes = 99;
  std::vector<int> out(12);
  run(*assorted_.image, "probe", launch, out.data());
  EXPECT_THAT(out, ElementsAre(90, 132, 99, 1, 2, 3, 4, 1, 1, 2, 1, 1));
}

}  // namespace
}  // namespace foundry::sim
