// How long a code image is, from its own headers. Pure: reads through a callback and trusts nothing it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/result.h"

namespace foundry::hook {

inline constexpr uint32_t kWrapperMagic = 0x466243b1;
inline constexpr uint32_t kFatbinMagic = 0xba55ed50;
// Longer ones are taken for damaged. The largest fatbins in use have some hundred MB.
inline constexpr uint64_t kMostImageBytes = uint64_t{8} << 30;
inline constexpr uint64_t kMostPtxBytes = uint64_t{1} << 30;

// Copies bytes [offset, offset + bytes) of the image; false if they are not all readable.
using ReadImage = std::function<bool(uint64_t offset, void* out, size_t bytes)>;

struct ImageExtent {
  foundry_image_format format = FOUNDRY_IMAGE_FATBIN;
  uint64_t bytes = 0;  // PTX: with its terminating zero
};

// A fatbin ends with its own header_size + size, whatever follows it in the section; an ELF with the last of its
// headers, sections and segments; PTX with the first zero byte. Everything else is `corrupt`.
Result<ImageExtent> image_extent(const ReadImage& read);

// What a fatbin wrapper (version 1; or 2, whose data is the linked image) points to; `data` is unset if it is none.
struct Wrapper {
  bool is_wrapper = false;
  const void* data = nullptr;
};
Result<Wrapper> unwrap(const ReadImage& read);

}  // namespace foundry::hook
