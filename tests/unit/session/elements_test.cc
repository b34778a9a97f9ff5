#include "csrc/session/elements.h"

#include <cmath>
#include <limits>

#include "tests/unit/session/device_fixture.h"

namespace foundry::session::testing {
namespace {

class ElementsTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (HasFatalFailure()) return;
    for (int i = 0; i < 24; ++i) numbers.push_back(i);
    base = upload(numbers);
  }
  // The elements of a view of `numbers` that begins `first` elements into it.
  std::vector<int32_t> view(uint64_t first, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    TensorInfo tensor;
    tensor.dtype = "int32";
    tensor.item_bytes = 4;
    tensor.address = base + 4 * first;
    tensor.sizes = std::move(sizes);
    tensor.strides = std::move(strides);
    tensor.bytes = extent_bytes(tensor).value();
    auto device = DeviceMemory::create(driver);
    EXPECT_TRUE(device.ok()) << device.error().text;
    const auto bytes = read_elements(device.value(), tensor);
    EXPECT_TRUE(bytes.ok()) << bytes.error().text;
    return values_of<int32_t>(bytes.value());
  }

  std::vector<int32_t> numbers;
  uint64_t base = 0;
};

using Ints = std::vector<int32_t>;

TEST_F(ElementsTest, StandInOrderOfTheirIndices) {
  EXPECT_EQ(view(0, {2, 3}, {3, 1}), (Ints{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(view(4, {3, 2}, {1, 3}), (Ints{4, 7, 5, 8, 6, 9})) << "transposed";
  EXPECT_EQ(view(1, {2, 2, 2}, {12, 4, 1}), (Ints{1, 2, 5, 6, 13, 14, 17, 18})) << "rows of a larger tensor";
  EXPECT_EQ(view(3, {4}, {5}), (Ints{3, 8, 13, 18})) << "a column";
  EXPECT_EQ(view(23, {}, {}), (Ints{23})) << "a single number";
}

TEST_F(ElementsTest, NothingWhereADimensionIsEmpty) { EXPECT_EQ(view(0, {3, 0}, {1, 1}), Ints{}); }

TEST_F(ElementsTest, RepeatedMemoryStandsOnce) {
  EXPECT_EQ(view(2, {5, 2}, {0, 1}), (Ints{2, 3})) << "an expanded tensor";
  EXPECT_EQ(view(2, {1000000000, 1000000000, 1000000000, 3}, {0, 0, 0, 1}), (Ints{2, 3, 4})) << "more than 2^64 bytes";
}

template <class T>
std::optional<double> difference(std::string_view dtype, std::vector<T> a, std::vector<T> b) {
  return largest_difference(dtype, std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(LargestDifference, OfFloatingPointNumbers) {
  EXPECT_EQ(difference<float>("float32", {1, 2, 3}, {1, 2.5, 2.75}), 0.5);
  EXPECT_EQ(difference<double>("float64", {1e-300, -4}, {0, 4}), 8);
  EXPECT_EQ(difference<float>("float32", {1, 2}, {1, 2}), 0);
  EXPECT_EQ(difference<float>("float32", {0.0f}, {-0.0f}), 0) << "other bits, the same number";
  EXPECT_EQ(difference<float>("float32", {}, {}), 0);
}

TEST(LargestDifference, OfHalvesAsTheirNumbers) {
  // 1, 1.5, the largest number, the smallest subnormal one, the largest subnormal one.
  EXPECT_EQ(difference<uint16_t>("float16", {0x3c00}, {0x3e00}), 0.5);
  EXPECT_EQ(difference<uint16_t>("float16", {0x7bff}, {0}), 65504);
  EXPECT_EQ(difference<uint16_t>("float16", {0x0001}, {0}), std::ldexp(1, -24));
  EXPECT_EQ(difference<uint16_t>("float16", {0x83ff}, {0}), std::ldexp(1023, -24));
  EXPECT_EQ(difference<uint16_t>("float16", {0xbc00}, {0x3c00}), 2) << "the sign";
  // 1, -2.
  EXPECT_EQ(difference<uint16_t>("bfloat16", {0x3f80}, {0xc000}), 3);
}

TEST(LargestDifference, IsNoneWhereNoNumberBoundsIt) {
  EXPECT_EQ(difference<float>("float32", {1}, {NAN}), std::nullopt);
  EXPECT_EQ(difference<float>("float32", {kInfinity}, {-kInfinity}), std::nullopt);
  EXPECT_EQ(difference<float>("float32", {kInfinity}, {1}), std::nullopt);
  EXPECT_EQ(difference<uint16_t>("float16", {0x7c00}, {0x3c00}), std::nullopt) << "infinity";
  EXPECT_EQ(difference<uint16_t>("float16", {0x7e00}, {0x3c00}), std::nullopt) << "no number";
  EXPECT_EQ(difference<int32_t>("int32", {1}, {2}), std::nullopt) << "integers differ or do not";
  EXPECT_EQ(difference<float>("float32", {1}, {1, 1}), std::nullopt) << "not as many";
}

TEST(LargestDifference, TwoThatAreNoNumbersAreEqual) {
  const float other = -std::nanf("7");
  EXPECT_EQ(difference<float>("float32", {NAN, 1}, {other, 3}), 2);
  EXPECT_EQ(difference<float>("float32", {kInfinity, 1}, {kInfinity, 3}), 2);
}

TEST(IsFloating, KnowsTheNamesOfFrameworks) {
  for (const char* name : {"float16", "bfloat16", "float32", "float64", "float8_e4m3fn"})
    EXPECT_TRUE(is_floating(name));
  for (const char* name : {"int32", "uint8", "bool", "complex64", ""}) EXPECT_FALSE(is_floating(name));
}

}  // namespace
}  // namespace foundry::session::testing
