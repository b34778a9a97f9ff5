// Libraries of the workspace: Boost, TBB, zstd, xxHash, an embedded fatbin, GoogleTest itself.
#include "build/selftest/answer.h"

#include <cuda.h>
#include <fatbinary_section.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "build/selftest/embedded_text.h"
#include "build/selftest/scale_sm80.h"

namespace {

TEST(Libraries, BoostAndTbb) { EXPECT_EQ(foundry::selftest::sum_of_squares(1000), 332833500); }

TEST(Libraries, ZstdRestoresWhatItCompressed) {
  const std::string text(10000, 'x');
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t bytes = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3);
  ASSERT_FALSE(ZSTD_isError(bytes));
  EXPECT_LT(bytes, 100u);
  std::string back(text.size(), '\0');
  EXPECT_EQ(ZSTD_decompress(back.data(), back.size(), packed.data(), bytes), text.size());
  EXPECT_EQ(back, text);
}

// The value of the empty input is published with the algorithm.
TEST(Libraries, Xxh3) { EXPECT_EQ(XXH3_64bits("", 0), 0x2d06800538d394c2ULL); }

TEST(Libraries, CudaHeadersAre13) { EXPECT_EQ(CUDA_VERSION / 1000, 13); }

TEST(Embed, BytesOfAFile) {
  const std::string_view text(reinterpret_cast<const char*>(embedded_text_begin), embedded_text_size);
  EXPECT_EQ(text, "embedded\n");
}

TEST(Embed, FatbinHasBothImages) {
  ASSERT_GT(scale_sm80_size, 16u);
  std::uint32_t magic = 0;
  std::memcpy(&magic, scale_sm80_begin, sizeof magic);
  EXPECT_EQ(magic, 0xBA55ED50u);
  const std::string_view bytes(reinterpret_cast<const char*>(scale_sm80_begin), scale_sm80_size);
  EXPECT_THAT(std::string(bytes), testing::HasSubstr("\x7f"
                                                     "ELF"));
}

}  // namespace
