// Fatbin containers: bounds-safe parsing, and the slim copy that an archive keeps for one GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/result.h"

namespace foundry::archive {

enum class FatbinKind : uint16_t { ptx = 1, elf = 2 };  // other numbers exist (LTO, relocatable PTX) and are passed by

struct FatbinEntry {
  uint64_t offset = 0;  // of the entry's header in the container
  uint32_t header_bytes = 0;
  uint64_t payload_bytes = 0;  // as stored, padding included
  uint16_t kind = 0;           // FatbinKind
  uint32_t arch = 0;           // 10 * major + minor
  uint64_t flags = 0;
  uint32_t compressed_bytes = 0;    // 0 if not compressed
  uint64_t uncompressed_bytes = 0;  // 0 if not compressed

  bool compressed() const;
  bool zstd() const;
  // Whether the driver of a GPU of compute capability `cc` can use this entry: ELF within its major version and not
  // newer, PTX not newer; architecture-specific code (sm_90a) on exactly its architecture, family code (sm_100f) within
  // the major version.
  bool runs_on(uint32_t cc) const;
};

// True where the bytes begin with a fatbin container's magic.
bool is_fatbin(std::span<const std::byte> image);
// Size of the container at the start of `image`, by its own header: what follows belongs to others.
Result<uint64_t> fatbin_bytes(std::span<const std::byte> image);
// Its entries; `corrupt` where one does not fit.
Result<std::vector<FatbinEntry>> fatbin_entries(std::span<const std::byte> image);
// The entry's code, decompressed if need be. zstd only; LZ4 is `unsupported`.
Result<std::vector<std::byte>> fatbin_payload(std::span<const std::byte> image, const FatbinEntry& entry);

struct SlimImage {
  enum class Kept { elf, ptx, whole };
  std::vector<std::byte> image;
  Kept kept = Kept::whole;
  uint32_t arch = 0;     // of the entries kept, 0 for the whole image
  uint32_t entries = 0;  // kept
  std::string note;      // one sentence for reports: what was kept and why
};

// A container with the entries that a GPU of compute capability `cc` (10 * major + minor) uses: of the ELF entries
// that run on it all those of the highest architecture number; without any, the PTX of the highest architecture. Where
// nothing fits the image is kept whole and `note` says so. `decompress` stores zstd entries decompressed, which loads
// faster and is larger.
Result<SlimImage> slim(std::span<const std::byte> image, uint32_t cc, bool decompress = false);

}  // namespace foundry::archive
