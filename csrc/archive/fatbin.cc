#include "csrc/archive/fatbin.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

// The layout that fatbinary of CUDA 11 to 13 writes; read off its output, there is no public description.
constexpr uint32_t kMagic = 0xba55ed50;
constexpr size_t kHeaderBytes = 16;       // +6 u16 header bytes, +8 u64 bytes of all entries
constexpr size_t kEntryHeaderBytes = 64;  // the fixed part
constexpr size_t kLargestEntryHeader = 1u << 16;
constexpr uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;
constexpr uint64_t kFlagArchSpecific = 0x100000, kFlagFamily = 0x200000;
constexpr uint64_t kMostDecompressed = 1ull << 31;
// Offsets in an entry's header.
constexpr size_t kAtKind = 0, kAtHeaderBytes = 4, kAtPayload = 8, kAtCompressed = 16, kAtArch = 28, kAtFlags = 40,
                 kAtUncompressed = 56;

template <class T>
T load(std::span<const std::byte> bytes, uint64_t offset) {  // the caller has checked the range
  T out;
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

template <class T>
void store(std::vector<std::byte>& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

Error damaged(const std::string& why) { return {ErrorKind::corrupt, 0, "The fatbin is damaged: " + why + "."}; }

bool is_kind(const FatbinEntry& entry, FatbinKind kind) { return entry.kind == static_cast<uint16_t>(kind); }

std::string name(const FatbinEntry& entry) {
  const char* suffix = (entry.flags & kFlagFamily) != 0 ? "f" : (entry.flags & kFlagArchSpecific) != 0 ? "a" : "";
  return format("%s%u%s",
                is_kind(entry, FatbinKind::ptx)   ? "PTX compute_"
                : is_kind(entry, FatbinKind::elf) ? "sm_"
                                                  : "code for ",
                entry.arch, suffix);
}

// The entry with its payload decompressed, header adjusted: what fatbinary writes without compression.
Status append_decompressed(std::span<const std::byte> image, const FatbinEntry& entry, std::vector<std::byte>& out) {
  FOUNDRY_ASSIGN(std::vector<std::byte> payload, fatbin_payload(image, entry));
  payload.resize((payload.size() + 7) / 8 * 8);
  const size_t at = out.size();
  const auto header = image.subspan(entry.offset, entry.header_bytes);
  out.insert(out.end(), header.begin(), header.end());
  store<uint64_t>(out, at + kAtPayload, payload.size());
  store<uint32_t>(out, at + kAtCompressed, 0);
  store<uint64_t>(out, at + kAtFlags, entry.flags & ~(kFlagLz4 | kFlagZstd));
  store<uint64_t>(out, at + kAtUncompressed, 0);
  out.insert(out.end(), payload.begin(), payload.end());
  return success();
}

}  // namespace

bool FatbinEntry::compressed() const { return (flags & (kFlagLz4 | kFlagZstd)) != 0; }
bool FatbinEntry::zstd() const { return (flags & kFlagZstd) != 0; }

bool FatbinEntry::runs_on(uint32_t cc) const {
  if (is_kind(*this, FatbinKind::ptx) || is_kind(*this, FatbinKind::elf)) {
    if ((flags & kFlagFamily) != 0) return arch / 10 == cc / 10 && arch <= cc;
    if ((flags & kFlagArchSpecific) != 0) return arch == cc;
    return arch <= cc && (is_kind(*this, FatbinKind::ptx) || arch / 10 == cc / 10);
  }
  return false;
}

bool is_fatbin(std::span<const std::byte> image) {
  return image.size() >= sizeof kMagic && load<uint32_t>(image, 0) == kMagic;
}

Result<uint64_t> fatbin_bytes(std::span<const std::byte> image) {
  if (image.size() < kHeaderBytes || !is_fatbin(image)) {
    return Error{ErrorKind::invalid, 0, "These bytes do not begin with a fatbin container."};
  }
  const uint64_t header = load<uint16_t>(image, 6), body = load<uint64_t>(image, 8);
  if (header < kHeaderBytes || header > image.size() || body > image.size() - header) {
    return damaged(format("its header says %llu + %llu bytes, there are %zu", static_cast<unsigned long long>(header),
                          static_cast<unsigned long long>(body), image.size()));
  }
  return header + body;
}

Result<std::vector<FatbinEntry>> fatbin_entries(std::span<const std::byte> image) {
  FOUNDRY_ASSIGN(const uint64_t end, fatbin_bytes(image));
  std::vector<FatbinEntry> out;
  for (uint64_t at = load<uint16_t>(image, 6); at < end;) {
    if (end - at < kEntryHeaderBytes) return damaged(format("entry %zu is cut off", out.size()));
    FatbinEntry entry;
    entry.offset = at;
    entry.kind = load<uint16_t>(image, at + kAtKind);
    entry.header_bytes = load<uint32_t>(image, at + kAtHeaderBytes);
    entry.payload_bytes = load<uint64_t>(image, at + kAtPayload);
    entry.arch = load<uint32_t>(image, at + kAtArch);
    entry.flags = load<uint64_t>(image, at + kAtFlags);
    if (entry.header_bytes < kEntryHeaderBytes || entry.header_bytes > kLargestEntryHeader ||
        entry.header_bytes > end - at || entry.payload_bytes > end - at - entry.header_bytes) {
      return damaged(format("entry %zu reaches beyond the container", out.size()));
    }
    if (entry.compressed()) {
      entry.compressed_bytes = load<uint32_t>(image, at + kAtCompressed);
      entry.uncompressed_bytes = load<uint64_t>(image, at + kAtUncompressed);
      if (entry.compressed_bytes > entry.payload_bytes || entry.uncompressed_bytes > kMostDecompressed) {
        return damaged(format("the sizes of compressed entry %zu are impossible", out.size()));
      }
    }
    out.push_back(entry);
    at += entry.header_bytes + entry.payload_bytes;
  }
  return out;
}

Result<std::vector<std::byte>> fatbin_payload(std::span<const std::byte> image, const FatbinEntry& entry) {
  if (entry.offset > image.size() || entry.header_bytes > image.size() - entry.offset ||
      entry.payload_bytes > image.size() - entry.offset - entry.header_bytes) {
    return damaged("an entry reaches beyond the container");
  }
  const auto payload = image.subspan(entry.offset + entry.header_bytes, entry.payload_bytes);
  if (!entry.compressed()) return std::vector<std::byte>(payload.begin(), payload.end());
  if (!entry.zstd()) {
    return Error{ErrorKind::unsupported, 0,
                 "The fatbin's entry for " + name(entry) +
                     " is compressed by LZ4 (CUDA before 12.4, or --compress-mode=speed), which "
                     "Foundry does not decompress."};
  }
  // Some writers leave the compressed size out; the payload then ends with padding that is not part of the frame.
  const size_t given = entry.compressed_bytes != 0 ? entry.compressed_bytes : payload.size();
  const size_t frame = ZSTD_findFrameCompressedSize(payload.data(), given);
  const unsigned long long stated = ZSTD_getFrameContentSize(payload.data(), given);
  if (ZSTD_isError(frame) || stated == ZSTD_CONTENTSIZE_ERROR ||
      (stated != ZSTD_CONTENTSIZE_UNKNOWN && stated != entry.uncompressed_bytes)) {
    return damaged("the entry for " + name(entry) + " is no zstd frame of the size it states");
  }
  // zstd cannot expand by more than this; a header that claims more must not make us allocate it.
  if (entry.uncompressed_bytes / (1u << 16) > frame)
    return damaged("the entry for " + name(entry) + " claims an impossible size");
  std::vector<std::byte> out(entry.uncompressed_bytes);
  const size_t size = ZSTD_decompress(out.data(), out.size(), payload.data(), frame);
  if (size != out.size()) return damaged("the entry for " + name(entry) + " cannot be decompressed");
  return out;
}

Result<SlimImage> slim(std::span<const std::byte> image, uint32_t cc, bool decompress) {
  FOUNDRY_ASSIGN(const uint64_t bytes, fatbin_bytes(image));
  image = image.first(bytes);
  FOUNDRY_ASSIGN(const std::vector<FatbinEntry> entries, fatbin_entries(image));
  SlimImage out;
  for (const FatbinKind kind : {FatbinKind::elf, FatbinKind::ptx}) {
    bool found = false;
    for (const FatbinEntry& entry : entries) {
      if (!is_kind(entry, kind) || !entry.runs_on(cc)) continue;
      found = true;
      out.arch = std::max(out.arch, entry.arch);
    }
    if (!found) continue;
    out.kept = kind == FatbinKind::elf ? SlimImage::Kept::elf : SlimImage::Kept::ptx;
    break;
  }
  if (out.kept == SlimImage::Kept::whole) {
    out.image.assign(image.begin(), image.end());
    std::string have;
    for (const FatbinEntry& entry : entries) have += (have.empty() ? "" : ", ") + name(entry);
    out.note = format("No entry of this fatbin fits sm_%u (it has ", cc) + (have.empty() ? "none at all" : have) +
               "), so it is kept whole.";
    return out;
  }
  const FatbinKind kind = out.kept == SlimImage::Kept::elf ? FatbinKind::elf : FatbinKind::ptx;
  const size_t header_bytes = load<uint16_t>(image, 6);
  out.image.assign(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(header_bytes));
  std::string names;
  for (const FatbinEntry& entry : entries) {
    // Every variant of the architecture, for the driver to choose from as it always does.
    if (!is_kind(entry, kind) || entry.arch != out.arch || !entry.runs_on(cc)) continue;
    if (decompress && entry.zstd()) {
      FOUNDRY_TRY(append_decompressed(image, entry, out.image));
    } else {
      const auto whole = image.subspan(entry.offset, entry.header_bytes + entry.payload_bytes);
      out.image.insert(out.image.end(), whole.begin(), whole.end());
    }
    ++out.entries;
    names += (names.empty() ? "" : ", ") + name(entry);
  }
  store<uint64_t>(out.image, 8, out.image.size() - header_bytes);
  out.note = format("For sm_%u %u of %zu entries are kept (", cc, out.entries, entries.size()) + names + ").";
  return out;
}

}  // namespace foundry::archive
