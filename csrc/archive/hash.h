// xxh3-128: one-shot, streaming, and the chunked form that sections use so that large ones can be checked in parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/archive/records.h"

namespace foundry::archive {

// Plain xxh3-128 of the bytes: images, headers, directories, deduplication.
Hash128 hash(std::span<const std::byte> bytes);

// 32 lower-case hexadecimal digits, as file names under images/ have them.
std::string hex(const Hash128& hash);
// False where `text` is not 32 lower-case hexadecimal digits.
bool parse_hex(std::string_view text, Hash128* out);

// Streaming form of hash().
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void reset();
  void add(std::span<const std::byte> bytes);
  Hash128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A section's hash: hash() over the hashes of its 4 MiB chunks in order. An empty section has no chunk.
inline constexpr uint64_t kHashChunkBytes = 4ull << 20;
Hash128 combine_chunks(std::span<const Hash128> chunks);
Hash128 section_hash(std::span<const std::byte> bytes);

// Streaming form of section_hash().
class SectionHasher {
 public:
  void add(std::span<const std::byte> bytes);
  Hash128 finish();

 private:
  Hasher chunk_;
  uint64_t in_chunk_ = 0;
  std::vector<Hash128> chunks_;
};

}  // namespace foundry::archive
