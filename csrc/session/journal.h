// Journals as data: of an archive, of a file that a LOAD wrote, or of this process so far.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/archive/inventory.h"
#include "csrc/archive/reader.h"
#include "csrc/archive/strings.h"
#include "csrc/archive/writer.h"
#include "csrc/base/result.h"
#include "csrc/session/process.h"

namespace foundry::session {

// The records of a journal, wherever they lie. Every index and reference is valid.
struct JournalView {
  std::span<const archive::ZoneRecord> zones;
  std::span<const archive::JournalRecord> events;
  std::span<const archive::StackRecord> stacks;
  std::span<const archive::FrameRecord> frames;
  std::span<const archive::ModuleRecord> modules;
  std::span<const archive::PythonFrameRecord> python_frames;
  std::span<const std::byte> strings;

  std::string_view text(archive::StringRef ref) const {
    return {reinterpret_cast<const char*>(strings.data()) + ref.offset, ref.bytes};
  }
};

// The records of a journal in the making.
struct JournalTables {
  archive::StringTable strings;
  std::vector<archive::ZoneRecord> zones;
  std::vector<archive::JournalRecord> events;
  std::vector<archive::StackRecord> stacks;
  std::vector<archive::FrameRecord> frames;
  std::vector<archive::ModuleRecord> modules;
  std::vector<archive::PythonFrameRecord> python_frames;

  JournalView view() const;
  // Writes the file `name` below `directory`, which must not exist.
  Result<archive::WrittenFile> write(int directory, const std::string& name) const;
};

// What this process's owner has recorded so far; events of zones that are not in `zones` belong to none.
JournalTables collect_journal(const Process& process, std::span<const foundry_zone_info> zones);

// A journal to read, with what holds its records. Immutable.
class Journal {
 public:
  // Of a rank of an archive; `inventory` is what foundry.json lists.
  static Result<std::shared_ptr<Journal>> of_archive(const std::string& path, uint32_t rank,
                                                     const std::vector<archive::FileDescription>& inventory);
  static Result<std::shared_ptr<Journal>> of_file(const std::string& path);
  // `device`: whose zones.
  static Result<std::shared_ptr<Journal>> of_process(int device);

  const JournalView& view() const { return view_; }

 private:
  explicit Journal(archive::File file);
  explicit Journal(JournalTables tables);

  archive::File file_;
  JournalTables tables_;
  JournalView view_;
};

// Writes this process's journal to a file; one that is there is replaced in one step.
Status write_process_journal(int device, const std::string& path);

}  // namespace foundry::session
