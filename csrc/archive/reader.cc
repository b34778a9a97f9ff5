#include "csrc/archive/reader.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/archive/packing.h"
#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

constexpr uint64_t kParallelFrom = 2 * kHashChunkBytes;

using Ull = unsigned long long;

Error damaged(const std::string& file, const std::string& part, const std::string& why) {
  return {ErrorKind::corrupt, 0, file + ", " + part + ": " + why + ". The file is damaged; write the archive again."};
}

Error differs(const std::string& file, const std::string& why) {
  return {ErrorKind::mismatch, 0, file + " " + why + "."};
}

Hash128 header_hash(const FileHeader& header) {
  return hash(std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, header_hash)));
}

// What can be said from the header alone.
Status check_header(const FileHeader& header, const std::string& name) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return damaged(name, "header", "it does not begin with Foundry's mark");
  }
  if (header.format_version != kFormatVersion) {
    return differs(name, format("has archive format version %u; this Foundry reads version %u", header.format_version,
                                kFormatVersion));
  }
  if (header_hash(header) != header.header_hash) return damaged(name, "header", "its hash is wrong");
  if (header.reserved != 0) return damaged(name, "header", "a reserved field is not zero");
  return success();
}

Status check_layout(const FileHeader& header, uint64_t bytes, FileKind kind, const ReadOptions& options,
                    const std::string& name) {
  if (header.file_kind != static_cast<uint32_t>(kind)) {
    return differs(name, format("is a file of kind %s (%u), not %s", kind_name(static_cast<FileKind>(header.file_kind)),
                                header.file_kind, kind_name(kind)));
  }
  if (options.identity && !(header.header_hash == *options.identity)) {
    return differs(name, "is not the file that the inventory in foundry.json lists: identity " +
                             hex(header.header_hash) + ", listed " + hex(*options.identity));
  }
  if (header.file_bytes != bytes) {
    return damaged(
        name, "header",
        format("it says %llu bytes, the file has %llu", static_cast<Ull>(header.file_bytes), static_cast<Ull>(bytes)));
  }
  if (header.section_count != sections_of(kind)) {
    return damaged(
        name, "header",
        format("it says %u sections, a %s file has %u", header.section_count, kind_name(kind), sections_of(kind)));
  }
  const uint64_t directory_bytes = uint64_t{header.section_count} * sizeof(SectionEntry);
  if (header.directory_offset % 8 != 0 || header.directory_offset < sizeof(FileHeader) ||
      header.directory_offset > bytes || bytes - header.directory_offset != directory_bytes) {
    return damaged(name, "header", "the directory does not lie at the end of the file");
  }
  return success();
}

bool is_packed(const SectionEntry& entry) { return entry.packing != static_cast<uint32_t>(Packing::none); }

// One directory entry against the table.
Status check_entry(const SectionEntry& entry, uint64_t end, FileKind kind, const std::string& name) {
  const SectionInfo* info = find_section(entry.type);
  if (info == nullptr || info->kind != kind) {
    return damaged(name, "directory", format("section number %u is unknown in a %s file", entry.type, kind_name(kind)));
  }
  const std::string section = std::string("section ") + info->name;
  if (entry.version != info->version) {
    return differs(name, format("has section %s in version %u; this Foundry reads version %u", info->name,
                                entry.version, info->version));
  }
  if (entry.packing > static_cast<uint32_t>(Packing::zstd)) {
    return differs(name, format("has section %s packed in way %u; this Foundry reads ways up to %u", info->name,
                                entry.packing, static_cast<uint32_t>(Packing::zstd)));
  }
  if (entry.record_bytes != info->record_bytes) {
    return damaged(name, section,
                   format("it says %u bytes a record instead of %u", entry.record_bytes, info->record_bytes));
  }
  if (entry.count > info->most_records) {
    return damaged(name, section,
                   format("it says %llu records, at most %llu are allowed", static_cast<Ull>(entry.count),
                          static_cast<Ull>(info->most_records)));
  }
  // No overflow: both factors are bounded by the table.
  const uint64_t unpacked = entry.count * info->record_bytes;
  if (is_packed(entry) ? entry.bytes == 0 || entry.bytes > unpacked : entry.bytes != unpacked) {
    return damaged(
        name, section,
        format("it says %llu bytes for %llu records", static_cast<Ull>(entry.bytes), static_cast<Ull>(entry.count)));
  }
  if (entry.offset % 8 != 0 || entry.offset < sizeof(FileHeader) || entry.offset > end ||
      entry.bytes > end - entry.offset) {
    return damaged(name, section,
                   format("its place, %llu bytes at %llu, is not inside the file", static_cast<Ull>(entry.bytes),
                          static_cast<Ull>(entry.offset)));
  }
  return success();
}

// Sections fill the space between header and directory: no overlaps, and only zero padding up to the next 8 bytes.
// With that every byte of the file is covered by a check. The padding itself is looked at by check_padding().
Status check_tiling(std::vector<SectionEntry> entries, uint64_t end, const std::string& name) {
  std::sort(entries.begin(), entries.end(), [](const SectionEntry& a, const SectionEntry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  uint64_t at = sizeof(FileHeader);
  for (const SectionEntry& entry : entries) {
    const std::string section = std::string("section ") + find_section(entry.type)->name;
    if (entry.offset < at) return damaged(name, section, "it overlaps another section");
    if (entry.offset - at >= 8) return damaged(name, section, "there is a gap before it");
    at = entry.offset + entry.bytes;
  }
  if (end - at >= 8) return damaged(name, "directory", "there is a gap before it");
  return success();
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// The part of the file that one task reads and hashes.
struct Chunk {
  size_t entry;
  uint64_t offset, bytes;  // in the file
  Hash128 hash{};
};

// Reads the sections and checks their hashes; in parallel where it pays.
Status read_sections(int fd, std::span<std::byte> file, std::span<const SectionEntry> entries,
                     const std::string& name) {
  std::vector<Chunk> chunks;
  uint64_t total = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    total += entries[i].bytes;
    for (uint64_t at = 0; at < entries[i].bytes; at += kHashChunkBytes) {
      chunks.push_back({i, entries[i].offset + at, std::min(kHashChunkBytes, entries[i].bytes - at)});
    }
  }
  std::mutex mutex;
  Status failure = success();
  auto run = [&](size_t i) {
    Chunk& chunk = chunks[i];
    const std::span<std::byte> bytes = file.subspan(chunk.offset, chunk.bytes);
    Status read = read_exactly(fd, chunk.offset, bytes, name);
    if (read.ok()) {
      chunk.hash = hash(bytes);
    } else {
      const std::lock_guard<std::mutex> lock(mutex);
      if (failure.ok()) failure = std::move(read);
    }
  };
  if (total >= kParallelFrom) {
    tbb::parallel_for(size_t{0}, chunks.size(), run);
  } else {
    for (size_t i = 0; i < chunks.size(); ++i) run(i);
  }
  FOUNDRY_TRY(std::move(failure));

  std::vector<std::vector<Hash128>> hashes(entries.size());
  for (const Chunk& chunk : chunks) hashes[chunk.entry].push_back(chunk.hash);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!(combine_chunks(hashes[i]) == entries[i].hash)) {
      return damaged(name, std::string("section ") + find_section(entries[i].type)->name, "its hash is wrong");
    }
  }
  return success();
}

// Frames of all packed sections, checked, each with its place in the memory they are unpacked to.
struct Unpacking {
  std::vector<std::pair<PackedFrame, uint64_t>> frames;
  std::vector<uint64_t> starts;  // by entry
  uint64_t bytes = 0;
};

Result<Unpacking> plan_unpacking(std::span<const std::byte> file, std::span<const SectionEntry> entries,
                                 const std::string& name) {
  Unpacking plan;
  for (const SectionEntry& entry : entries) {
    plan.starts.push_back(plan.bytes);
    if (!is_packed(entry)) continue;
    const std::string section = std::string("section ") + find_section(entry.type)->name;
    const uint64_t bytes = entry.count * entry.record_bytes;
    if (bytes > kMostUnpackedBytes || plan.bytes > kMostUnpackedBytes - bytes) {
      return damaged(name, section, "packed sections claim more than " + bytes_text(kMostUnpackedBytes));
    }
    const auto frames = packed_frames(file.subspan(entry.offset, entry.bytes), bytes);
    if (!frames.ok()) return damaged(name, section, frames.error().text);
    uint64_t at = plan.bytes;
    for (const PackedFrame& frame : frames.value()) {
      plan.frames.emplace_back(frame, at);
      at += frame.bytes;
    }
    plan.bytes = (at + 7) / 8 * 8;
  }
  return plan;
}

Result<PrivateMemory> unpack_sections(const Unpacking& plan, const std::string& name) {
  FOUNDRY_ASSIGN(PrivateMemory memory, PrivateMemory::create(plan.bytes));
  std::atomic<bool> whole{true};
  tbb::parallel_for(size_t{0}, plan.frames.size(), [&](size_t i) {
    const auto& [frame, at] = plan.frames[i];
    if (!unpack(frame, memory.bytes().subspan(at, frame.bytes))) whole = false;
  });
  if (!whole) return damaged(name, "packed sections", "a zstd frame is damaged");
  return memory;
}

Status check_padding(int fd, std::span<const SectionEntry> entries, uint64_t directory, const std::string& name) {
  for (const SectionEntry& entry : entries) {
    std::byte padding[8] = {};
    const uint64_t from = entry.offset + entry.bytes;
    const uint64_t to = std::min((from + 7) / 8 * 8, directory);
    const std::span<std::byte> gap(padding, to - from);
    FOUNDRY_TRY(read_exactly(fd, from, gap, name));
    if (!all_zero(gap)) {
      return damaged(name, std::string("section ") + find_section(entry.type)->name,
                     "the padding behind it is not zero");
    }
  }
  return success();
}

Result<FileHeader> read_header(int fd, uint64_t bytes, const std::string& name) {
  if (bytes < sizeof(FileHeader)) {
    return damaged(
        name, "header",
        format("the file has %llu bytes, the header alone takes %zu", static_cast<Ull>(bytes), sizeof(FileHeader)));
  }
  FileHeader header;
  FOUNDRY_TRY(read_exactly(fd, 0, std::as_writable_bytes(std::span(&header, 1)), name));
  FOUNDRY_TRY(check_header(header, name));
  return header;
}

size_t table_index(uint32_t number) { return static_cast<size_t>(find_section(number) - kSections.data()); }

}  // namespace

Result<File> File::open(int directory, const std::string& name, FileKind kind, const ReadOptions& options) try {
  FOUNDRY_ASSIGN(const FileDescriptor fd, open_file_below(directory, name));
  FOUNDRY_ASSIGN(const uint64_t bytes, file_bytes(fd.get(), name));
  FOUNDRY_ASSIGN(const FileHeader header, read_header(fd.get(), bytes, name));
  FOUNDRY_TRY(check_layout(header, bytes, kind, options, name));
  if (bytes > options.most_bytes) {
    return damaged(name, "header",
                   "it is " + bytes_text(bytes) + "; at most " + bytes_text(options.most_bytes) + " are read");
  }

  std::vector<SectionEntry> entries(header.section_count);
  FOUNDRY_TRY(read_exactly(fd.get(), header.directory_offset, std::as_writable_bytes(std::span(entries)), name));
  if (!(hash(std::as_bytes(std::span(entries))) == header.directory_hash)) {
    return damaged(name, "directory", "its hash is wrong");
  }
  File file;
  std::array<bool, kSections.size()> seen{};
  for (const SectionEntry& entry : entries) {
    FOUNDRY_TRY(check_entry(entry, header.directory_offset, kind, name));
    const size_t index = table_index(entry.type);
    if (seen[index]) return damaged(name, std::string("section ") + kSections[index].name, "it appears twice");
    seen[index] = true;
    file.ranges_[index] = {entry.offset, entry.bytes, false};
  }
  FOUNDRY_TRY(check_tiling(entries, header.directory_offset, name));

  FOUNDRY_ASSIGN(file.memory_, PrivateMemory::create(bytes));
  FOUNDRY_TRY(read_sections(fd.get(), file.memory_.bytes(), entries, name));
  FOUNDRY_TRY(check_padding(fd.get(), entries, header.directory_offset, name));
  FOUNDRY_ASSIGN(const Unpacking plan, plan_unpacking(std::as_const(file.memory_).bytes(), entries, name));
  if (plan.bytes > 0) {
    FOUNDRY_ASSIGN(file.unpacked_, unpack_sections(plan, name));
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!is_packed(entries[i])) continue;
      file.ranges_[table_index(entries[i].type)] = {plan.starts[i], entries[i].count * entries[i].record_bytes, true};
    }
  }
  file.name_ = name;
  file.kind_ = kind;
  file.identity_ = header.header_hash;
  return file;
} catch (const std::exception& error) {
  return Error{ErrorKind::out_of_memory, 0, name + " cannot be read: " + error.what() + "."};
}

std::span<const std::byte> File::raw_section(Section section) const {
  const Range range = ranges_[table_index(static_cast<uint32_t>(section))];
  return (range.packed ? unpacked_ : memory_).bytes().subspan(range.offset, range.bytes);
}

std::span<const std::byte> File::strings() const {
  const SectionInfo* info = strings_section(kind_);
  return info == nullptr ? std::span<const std::byte>() : raw_section(info->section);
}

Result<std::string_view> File::text(StringRef ref) const {
  if (!has_text(ref)) {
    return damaged(name_, "strings",
                   format("a string of %u bytes at %u lies outside the section", ref.bytes, ref.offset));
  }
  return view(ref);
}

std::string_view File::view(StringRef ref) const {
  if (!has_text(ref)) return {};
  return {reinterpret_cast<const char*>(strings().data()) + ref.offset, ref.bytes};
}

Result<FileKind> read_kind(int directory, const std::string& name) {
  FOUNDRY_ASSIGN(const FileDescriptor fd, open_file_below(directory, name));
  FOUNDRY_ASSIGN(const uint64_t bytes, file_bytes(fd.get(), name));
  FOUNDRY_ASSIGN(const FileHeader header, read_header(fd.get(), bytes, name));
  const auto kind = static_cast<FileKind>(header.file_kind);
  if (header.file_kind < 1 || header.file_kind > static_cast<uint32_t>(FileKind::golden)) {
    return damaged(name, "header", format("%u is no kind of file", header.file_kind));
  }
  return kind;
}

}  // namespace foundry::archive
