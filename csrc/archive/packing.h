// Sections that are stored compressed (`--compact`): zstd frames, one for every 4 MiB of records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/result.h"

namespace foundry::archive {

// What a frame holds; the last one of a section holds the rest.
inline constexpr uint64_t kPackedBytes = uint64_t{4} << 20;
// Packed sections of one file together may not claim more.
inline constexpr uint64_t kMostUnpackedBytes = uint64_t{4} << 30;

// Nothing where that saves less than a tenth. Errors: `out_of_memory`.
Result<std::optional<std::vector<std::byte>>> pack(std::span<const std::byte> bytes);

// Where the frames of a packed section lie. The text of an error says what is wrong with them.
struct PackedFrame {
  std::span<const std::byte> stored;
  uint64_t bytes = 0;  // unpacked
};
// Checks that `stored` is as many frames as `bytes` need, each of the size it must have, and nothing else. What they
// hold is not looked at.
Result<std::vector<PackedFrame>> packed_frames(std::span<const std::byte> stored, uint64_t bytes);
// False where the frame is damaged.
bool unpack(const PackedFrame& frame, std::span<std::byte> out);

}  // namespace foundry::archive
