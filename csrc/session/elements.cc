#include "csrc/session/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace foundry::session {
namespace {

float from_bfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float from_float16(uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa | 0x400), exponent - 25);
}

template <class Stored, class Convert>
std::optional<double> differ(std::span<const std::byte> a, std::span<const std::byte> b, Convert&& convert) {
  double largest = 0;
  for (size_t at = 0; at + sizeof(Stored) <= a.size(); at += sizeof(Stored)) {
    Stored left;
    Stored right;
    std::memcpy(&left, a.data() + at, sizeof left);
    std::memcpy(&right, b.data() + at, sizeof right);
    if (std::memcmp(&left, &right, sizeof left) == 0) continue;
    const double x = convert(left);
    const double y = convert(right);
    if (std::isnan(x) && std::isnan(y)) continue;
    const double difference = std::fabs(x - y);
    if (!std::isfinite(difference)) return std::nullopt;
    largest = std::max(largest, difference);
  }
  return largest;
}

// Copies the elements of dimensions [dim, ...) behind `from`.
void gather(const TensorInfo& tensor, size_t dim, const std::byte* from, std::vector<std::byte>& into) {
  if (dim == tensor.sizes.size()) {
    into.insert(into.end(), from, from + tensor.item_bytes);
    return;
  }
  const auto size = static_cast<size_t>(tensor.sizes[dim]);
  if (dim + 1 == tensor.sizes.size() && tensor.strides[dim] == 1) {
    into.insert(into.end(), from, from + size * tensor.item_bytes);
    return;
  }
  const size_t step = static_cast<size_t>(tensor.strides[dim]) * tensor.item_bytes;
  for (size_t i = 0; i < size; ++i) gather(tensor, dim + 1, from + i * step, into);
}

uint64_t element_bytes(const TensorInfo& tensor) {
  uint64_t bytes = tensor.item_bytes;
  for (const int64_t size : tensor.sizes) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return UINT64_MAX;
  }
  return bytes;
}

}  // namespace

Result<std::vector<std::byte>> read_elements(DeviceMemory& device, const TensorInfo& tensor) {
  std::vector<std::byte> extent;
  extent.reserve(tensor.bytes);
  FOUNDRY_TRY(device.read(tensor.address, tensor.bytes, [&](uint64_t, std::span<const std::byte> piece) {
    extent.insert(extent.end(), piece.begin(), piece.end());
    return success();
  }));
  if (element_bytes(tensor) > tensor.bytes) return extent;
  std::vector<std::byte> elements;
  elements.reserve(tensor.bytes);
  if (tensor.bytes != 0) gather(tensor, 0, extent.data(), elements);
  return elements;
}

bool is_floating(std::string_view dtype) { return dtype.starts_with("float") || dtype.starts_with("bfloat"); }

std::optional<double> largest_difference(std::string_view dtype, std::span<const std::byte> a,
                                         std::span<const std::byte> b) {
  if (a.size() != b.size()) return std::nullopt;
  if (dtype == "float32") return differ<float>(a, b, [](float x) { return x; });
  if (dtype == "float64") return differ<double>(a, b, [](double x) { return x; });
  if (dtype == "bfloat16") return differ<uint16_t>(a, b, from_bfloat16);
  if (dtype == "float16") return differ<uint16_t>(a, b, from_float16);
  return std::nullopt;
}

}  // namespace foundry::session
