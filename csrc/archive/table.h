// What the section table of records.h says, as types and constants: everything here is derived, nothing is added.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "csrc/archive/records.h"

namespace foundry::archive {

using blob = std::byte;  // the record type of sections that are plain bytes

enum class Section : uint32_t {
#define X(name, number, version, kind, record, most) name = number,
  FOUNDRY_ARCHIVE_SECTIONS(X)
#undef X
};

// Record type of a section: RecordOf<Section::nodes> is NodeRecord.
template <Section S>
struct SectionType;
#define X(name, number, version, kind, record_type, most)                                            \
  template <>                                                                                        \
  struct SectionType<Section::name> {                                                                \
    using record = record_type;                                                                      \
  };                                                                                                 \
  static_assert(std::is_trivially_copyable_v<record_type>, #record_type " cannot be used in place"); \
  static_assert(std::has_unique_object_representations_v<record_type>, #record_type " has padding"); \
  static_assert(alignof(record_type) <= 8, #record_type " needs more than the 8 bytes sections give");
FOUNDRY_ARCHIVE_SECTIONS(X)
#undef X
template <Section S>
using RecordOf = typename SectionType<S>::record;

static_assert(sizeof(FileHeader) == 72 && std::has_unique_object_representations_v<FileHeader>);
static_assert(sizeof(SectionEntry) == 56 && std::has_unique_object_representations_v<SectionEntry>);

struct SectionInfo {
  Section section;
  const char* name;
  uint32_t version;
  FileKind kind;
  uint32_t record_bytes;
  uint64_t most_records;

  uint32_t number() const { return static_cast<uint32_t>(section); }
};

inline constexpr auto kSections = std::to_array<SectionInfo>({
#define X(name, number, version, kind, record, most) \
  {Section::name, #name, version, FileKind::kind, sizeof(record), most},
    FOUNDRY_ARCHIVE_SECTIONS(X)
#undef X
});

// Null where the table has no section of that number.
constexpr const SectionInfo* find_section(uint32_t number) {
  for (const SectionInfo& info : kSections)
    if (info.number() == number) return &info;
  return nullptr;
}
constexpr const SectionInfo& section_info(Section section) { return *find_section(static_cast<uint32_t>(section)); }

constexpr uint32_t sections_of(FileKind kind) {
  uint32_t count = 0;
  for (const SectionInfo& info : kSections) count += info.kind == kind ? 1 : 0;
  return count;
}

// "graphs", "memory", ...; "unknown" for numbers that name no kind.
constexpr const char* kind_name(FileKind kind) {
  switch (kind) {
    case FileKind::graphs:
      return "graphs";
    case FileKind::memory:
      return "memory";
    case FileKind::journal:
      return "journal";
    case FileKind::golden:
      return "golden";
  }
  return "unknown";
}

// The section that a kind's StringRefs point into; null for a kind without strings.
constexpr const SectionInfo* strings_section(FileKind kind) {
  switch (kind) {
    case FileKind::graphs:
      return find_section(static_cast<uint32_t>(Section::graphs_strings));
    case FileKind::memory:
      return find_section(static_cast<uint32_t>(Section::memory_strings));
    case FileKind::journal:
      return find_section(static_cast<uint32_t>(Section::journal_strings));
    case FileKind::golden:
      return find_section(static_cast<uint32_t>(Section::golden_strings));
  }
  return nullptr;
}

}  // namespace foundry::archive
