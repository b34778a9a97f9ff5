// Reads one .fdry file: everything is checked before the first record can be seen.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "csrc/archive/files.h"
#include "csrc/archive/hash.h"
#include "csrc/archive/table.h"
#include "csrc/base/result.h"

namespace foundry::archive {

// A file may claim no more than this; content of one rank is bounded by the memory of one device.
inline constexpr uint64_t kMostFileBytes = 1ull << 38;

struct ReadOptions {
  std::optional<Hash128> identity;  // what the inventory of foundry.json says about this file
  uint64_t most_bytes = kMostFileBytes;
};

// An open file: private memory, header, directory, hashes and reserved fields checked. What the records say is
// checked by validate(); only after that may indices be followed without checks.
class File {
 public:
  // `name` is relative to `directory`, e.g. "rank_0/graphs.fdry".
  // Errors: `io` (cannot be opened or read), `corrupt` (damage; names file, section and reason), `mismatch` (other
  // format or section version, other kind of file, other identity than the inventory says), `out_of_memory`.
  static Result<File> open(int directory, const std::string& name, FileKind kind, const ReadOptions& options = {});

  const std::string& name() const { return name_; }
  FileKind kind() const { return kind_; }
  uint64_t bytes() const { return memory_.bytes().size(); }
  // Hash of the header, which holds the directory's hash, which holds the sections' hashes: stands for every byte.
  const Hash128& identity() const { return identity_; }

  // Records of a section of this kind of file, in place; empty for a section of another kind.
  template <Section S>
  std::span<const RecordOf<S>> section() const {
    const std::span<const std::byte> raw = raw_section(S);
    return {reinterpret_cast<const RecordOf<S>*>(raw.data()), raw.size() / sizeof(RecordOf<S>)};
  }
  std::span<const std::byte> raw_section(Section section) const;

  bool has_text(StringRef ref) const { return uint64_t{ref.offset} + ref.bytes <= strings().size(); }
  // The string, or an error of kind `corrupt` where it lies outside the strings section.
  Result<std::string_view> text(StringRef ref) const;
  // Same for validated files: a reference outside the strings section gives "".
  std::string_view view(StringRef ref) const;

 private:
  std::span<const std::byte> strings() const;

  std::string name_;
  FileKind kind_ = FileKind::graphs;
  Hash128 identity_{};
  PrivateMemory memory_;
  PrivateMemory unpacked_;
  struct Range {
    uint64_t offset = 0, bytes = 0;
    bool packed = false;  // lies in unpacked_
  };
  std::array<Range, kSections.size()> ranges_{};  // in the order of kSections
};

// The kind that a file's header claims, for tools that meet a file before they know what it is. Checks the header only.
Result<FileKind> read_kind(int directory, const std::string& name);

}  // namespace foundry::archive
