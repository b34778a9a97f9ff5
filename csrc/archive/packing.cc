#include "csrc/archive/packing.h"

#include <zstd.h>

#include <algorithm>
#include <memory>

#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

// What repeats are whole graphs, which any level finds: 12 takes three times as long and saves next to nothing.
constexpr int kLevel = 6;
// A frame and its neighbours repeat each other; a level's own window is smaller than a frame.
constexpr int kWindowLog = 22;
static_assert(uint64_t{1} << kWindowLog == kPackedBytes);

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

Error damaged(const std::string& why) { return {ErrorKind::corrupt, 0, why}; }

}  // namespace

Result<std::optional<std::vector<std::byte>>> pack(std::span<const std::byte> bytes) {
  const std::unique_ptr<ZSTD_CCtx, FreeCompressor> compressor(ZSTD_createCCtx());
  if (!compressor) return Error{ErrorKind::out_of_memory, 0, "There is no host memory for compressing."};
  ZSTD_CCtx_setParameter(compressor.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(compressor.get(), ZSTD_c_windowLog, kWindowLog);
  std::vector<std::byte> packed;
  for (size_t at = 0; at < bytes.size(); at += kPackedBytes) {
    const auto piece = bytes.subspan(at, std::min<size_t>(kPackedBytes, bytes.size() - at));
    const size_t before = packed.size();
    packed.resize(before + ZSTD_compressBound(piece.size()));
    const size_t size =
        ZSTD_compress2(compressor.get(), packed.data() + before, packed.size() - before, piece.data(), piece.size());
    if (ZSTD_isError(size)) {
      return Error{ErrorKind::out_of_memory, 0, format("zstd cannot compress: %s", ZSTD_getErrorName(size))};
    }
    packed.resize(before + size);
  }
  if (bytes.empty() || packed.size() > bytes.size() / 10 * 9) return std::optional<std::vector<std::byte>>();
  return std::optional(std::move(packed));
}

Result<std::vector<PackedFrame>> packed_frames(std::span<const std::byte> stored, uint64_t bytes) {
  std::vector<PackedFrame> frames;
  for (uint64_t left = bytes; left > 0;) {
    const uint64_t expected = std::min(left, kPackedBytes);
    const size_t size = ZSTD_findFrameCompressedSize(stored.data(), stored.size());
    if (ZSTD_isError(size)) return damaged(format("frame %zu is no whole zstd frame", frames.size()));
    if (ZSTD_getFrameContentSize(stored.data(), size) != expected) {
      return damaged(format("frame %zu does not state the size it must have", frames.size()));
    }
    frames.push_back({stored.first(size), expected});
    stored = stored.subspan(size);
    left -= expected;
  }
  if (!stored.empty()) return damaged("there is something behind its last frame");
  return frames;
}

bool unpack(const PackedFrame& frame, std::span<std::byte> out) {
  return out.size() == frame.bytes &&
         ZSTD_decompress(out.data(), out.size(), frame.stored.data(), frame.stored.size()) == frame.bytes;
}

}  // namespace foundry::archive
