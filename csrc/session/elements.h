// The elements of a tensor on the host: read, hashed, compared.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/session/device_memory.h"
#include "csrc/session/tensors.h"

namespace foundry::session {

// Elements in order of their indices, without what lies between them. A tensor that repeats memory (strides of 0) gives
// that memory once.
Result<std::vector<std::byte>> read_elements(DeviceMemory& device, const TensorInfo& tensor);

bool is_floating(std::string_view dtype);

// The largest absolute difference between two equally long arrays of float16, bfloat16, float32 or float64. Nothing for
// other types, and where one has a number and the other none (or infinities differ).
std::optional<double> largest_difference(std::string_view dtype, std::span<const std::byte> a,
                                         std::span<const std::byte> b);

}  // namespace foundry::session
