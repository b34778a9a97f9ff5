// Which bytes a memcpy or memset node touches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/archive/records.h"

namespace foundry::archive {

// [address, address + bytes); an extent that would wrap around ends at the end of the address space.
struct Extent {
  uint64_t address = 0;
  uint64_t bytes = 0;

  bool within(uint64_t start, uint64_t size) const {
    return address >= start && address - start <= size && bytes <= size - (address - start);
  }
};

namespace internal {

inline uint64_t saturated(unsigned __int128 value) {
  return value > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(value);
}

// A box of `width` bytes, `height` rows and `depth` slices at (x, y, z) of a pitched volume. A pitch or slice height of
// zero stands for a copy that does not leave its first row or slice.
inline Extent box(uint64_t base, uint64_t x, uint64_t y, uint64_t z, uint64_t pitch, uint64_t slice_height,
                  uint64_t width, uint64_t height, uint64_t depth) {
  using wide = unsigned __int128;
  const uint64_t slice = saturated(wide{pitch} * slice_height);
  const uint64_t start = saturated(wide{base} + wide{z} * slice + wide{y} * pitch + x);
  if (width == 0 || height == 0 || depth == 0) return {start, 0};
  const uint64_t bytes = saturated(wide{depth - 1} * slice + wide{height - 1} * pitch + width);
  return {start, std::min(bytes, UINT64_MAX - start)};
}

}  // namespace internal

inline Extent source_extent(const MemcpyRecord& copy) {
  return internal::box(copy.source, copy.source_x, copy.source_y, copy.source_z, copy.source_pitch, copy.source_height,
                       copy.width_bytes, copy.height, copy.depth);
}

inline Extent destination_extent(const MemcpyRecord& copy) {
  return internal::box(copy.destination, copy.destination_x, copy.destination_y, copy.destination_z,
                       copy.destination_pitch, copy.destination_height, copy.width_bytes, copy.height, copy.depth);
}

inline Extent extent(const MemsetRecord& set) {
  return internal::box(set.destination, 0, 0, 0, set.pitch, 0,
                       internal::saturated(static_cast<unsigned __int128>(set.width) * set.element_bytes), set.height,
                       1);
}

}  // namespace foundry::archive
