// Atomic publish: an archive appears whole under its name or not at all, whatever happens to the writer.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/archive/files.h"
#include "csrc/base/result.h"

namespace foundry::archive {

inline constexpr const char* kManifestName = "foundry.json";

// Steps of publish(), in order.
enum class PublishStep { staged, files_synced, manifest_written, set_aside, visible, old_removed };

struct PublishOptions {
  // False: do as on a file system that cannot exchange two names in one step.
  bool exchange = true;
  // Called after each step that was taken (`set_aside` only without exchange).
  std::function<void(PublishStep)> on_step;
};

// Tells one directory from another that has its name later. An archive never changes, so its time stamp does not.
struct DirectoryIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t modified_seconds = 0, modified_nanoseconds = 0;
  bool operator==(const DirectoryIdentity&) const = default;
};

struct Published {
  std::string path;
  bool replaced = false;              // an archive of that name existed and is gone
  std::vector<std::string> warnings;  // e.g. what was left of the old archive
};

// One SAVE. begin() makes the staging directory <archive>.tmp-<pid>-<random> beside the target; files are written
// below directory(); publish() writes foundry.json last, syncs everything and renames.
//
// Who wins when two SAVEs run at once: an archive that existed when begin() was called may be replaced; one that
// appeared or changed since then is the other's win, and publish() says so with an error of kind `state`.
//
// Replacing exchanges both names in one step (renameat2). On file systems without exchange the old archive is first
// renamed to <archive>.old-<pid>-<random>; a crash between the two renames leaves the old archive whole under that
// name, and begin() and remove_stale() (stale.h) put it back.
class Publication {
 public:
  // `target` is the archive's path; its parent directory must exist. Errors: `io`; `invalid` where the target is
  // something else than an archive or an empty directory.
  static Result<Publication> begin(const std::string& target, PublishOptions options = {});
  Publication(Publication&&) noexcept;
  Publication& operator=(Publication&&) noexcept;
  // Removes the staging directory unless published; only in the process that called begin().
  ~Publication();

  int directory() const { return staging_.get(); }
  const std::string& staging_path() const { return staging_path_; }
  const std::string& target() const { return target_; }

  Result<Published> publish(std::string_view manifest_json);
  // Removes the staging directory now, and says if that failed.
  Status abandon();

 private:
  Publication() = default;
  Result<std::string> replace();
  Result<std::string> set_aside_and_rename();
  void step(PublishStep step) const;
  Error lost() const;

  std::string target_, target_name_, staging_name_, staging_path_;
  FileDescriptor parent_, staging_;
  std::optional<DirectoryIdentity> existing_;  // at begin()
  PublishOptions options_;
  pid_t owner_ = 0;
  bool open_ = false;
};

}  // namespace foundry::archive
