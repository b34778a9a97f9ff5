// Writes one .fdry file: typed sections, interned strings, blobs streamed to disk as they come.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "csrc/archive/files.h"
#include "csrc/archive/hash.h"
#include "csrc/archive/strings.h"
#include "csrc/archive/table.h"
#include "csrc/base/result.h"

namespace foundry::archive {

struct WrittenFile {
  std::string name;
  uint64_t bytes = 0;
  Hash128 identity{};  // what File::identity() will say
};

// Usage: create, strings().add(...), put<Section::...>(records) or begin/append/end for a large blob, finish.
// Sections may come in any order, each once; those that were not written are written empty. The strings section is
// written by finish(). An abandoned writer leaves a file without a valid header.
class FileWriter {
 public:
  // `name` must not exist below `directory`; its parent directory must.
  static Result<FileWriter> create(int directory, const std::string& name, FileKind kind);

  StringTable& strings() { return strings_; }
  // Sections that are put from now on are compressed where that saves a tenth or more (csrc/archive/packing.h), and
  // reading them takes longer. Streamed ones are not.
  void set_compact(bool compact) { compact_ = compact; }

  template <Section S>
  Status put(std::span<const RecordOf<S>> records) {
    return put_raw(S, std::as_bytes(records));
  }
  Status put_raw(Section section, std::span<const std::byte> bytes);

  // One section at a time can be streamed; meanwhile put() is an error.
  Status begin(Section section);
  // Appends to the section begun last; returns the offset within the section at which these bytes lie.
  Result<uint64_t> append(std::span<const std::byte> bytes);
  // Reads bytes back that append() wrote to the section begun last.
  Status read_back(uint64_t offset, std::span<std::byte> out) const;
  Status end();

  // Writes strings, missing sections, directory and header, and fsyncs. No call may follow.
  Result<WrittenFile> finish();

 private:
  Status pad();
  Status write(std::span<const std::byte> bytes);
  Status usable(Section section) const;

  FileDescriptor fd_;
  std::string name_;
  FileKind kind_ = FileKind::graphs;
  uint64_t position_ = 0;  // bytes written so far
  StringTable strings_;
  std::vector<SectionEntry> directory_;
  bool compact_ = false;
  uint64_t unpacked_bytes_ = 0;  // of all sections that are stored packed
  bool streaming_ = false;
  SectionEntry current_{};
  SectionHasher hasher_;
  bool finished_ = false;
};

}  // namespace foundry::archive
