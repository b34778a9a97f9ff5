#include "csrc/archive/hash.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace foundry::archive {
namespace {

Hash128 canonical(XXH128_hash_t value) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, value);
  Hash128 out;
  static_assert(sizeof out.bytes == sizeof bytes.digest);
  std::memcpy(out.bytes, bytes.digest, sizeof out.bytes);
  return out;
}

}  // namespace

struct Hasher::State {
  XXH3_state_t xxh;
};

Hash128 hash(std::span<const std::byte> bytes) { return canonical(XXH3_128bits(bytes.data(), bytes.size())); }

std::string hex(const Hash128& hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * sizeof hash.bytes);
  for (const uint8_t byte : hash.bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

bool parse_hex(std::string_view text, Hash128* out) {
  if (text.size() != 2 * sizeof out->bytes) return false;
  auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  Hash128 parsed;
  for (size_t i = 0; i < sizeof parsed.bytes; ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    parsed.bytes[i] = static_cast<uint8_t>(16 * high + low);
  }
  *out = parsed;
  return true;
}

Hasher::Hasher() : state_(std::make_unique<State>()) { reset(); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::reset() { XXH3_128bits_reset(&state_->xxh); }
void Hasher::add(std::span<const std::byte> bytes) { XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size()); }
Hash128 Hasher::digest() const { return canonical(XXH3_128bits_digest(&state_->xxh)); }

Hash128 combine_chunks(std::span<const Hash128> chunks) { return hash(std::as_bytes(chunks)); }

Hash128 section_hash(std::span<const std::byte> bytes) {
  SectionHasher hasher;
  hasher.add(bytes);
  return hasher.finish();
}

void SectionHasher::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t take = std::min<uint64_t>(bytes.size(), kHashChunkBytes - in_chunk_);
    chunk_.add(bytes.first(take));
    in_chunk_ += take;
    bytes = bytes.subspan(take);
    if (in_chunk_ == kHashChunkBytes) {
      chunks_.push_back(chunk_.digest());
      chunk_.reset();
      in_chunk_ = 0;
    }
  }
}

Hash128 SectionHasher::finish() {
  if (in_chunk_ > 0) chunks_.push_back(chunk_.digest());
  const Hash128 out = combine_chunks(chunks_);
  chunk_.reset();
  in_chunk_ = 0;
  chunks_.clear();
  return out;
}

}  // namespace foundry::archive
