#include "csrc/archive/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "csrc/archive/stale.h"
#include "csrc/archive/temporary.h"

namespace foundry::archive {
namespace {

constexpr auto kLockPatience = std::chrono::seconds(30);  // what it guards takes milliseconds

bool is_unsupported(int code) { return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP || code == ENOTTY; }

// Serializes the renames of cooperating SAVEs beside one target. Where the file system has no locks (some network
// ones) the checks after the exchange have to do.
class ParentLock {
 public:
  static Result<ParentLock> take(int parent, const std::string& target) {
    ParentLock out;
    out.fd_ = FileDescriptor(openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!out.fd_) return io_error("cannot open the directory of", target, errno);
    const auto end = std::chrono::steady_clock::now() + kLockPatience;
    while (flock(out.fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) break;
      if (std::chrono::steady_clock::now() > end) {
        return Error{ErrorKind::state, EWOULDBLOCK,
                     "Another process has been publishing beside " + target + " for 30 seconds."};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return out;
  }

 private:
  FileDescriptor fd_;  // closing it releases the lock
};

Result<std::optional<DirectoryIdentity>> identify(int parent, const std::string& name, const std::string& shown) {
  struct stat info;
  if (fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::optional<DirectoryIdentity>();
    return io_error("cannot examine", shown, errno);
  }
  return std::optional(DirectoryIdentity{info.st_dev, info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec});
}

// What stands at the target may be replaced only if it is an archive or an empty directory.
Status check_replaceable(int parent, const std::string& name, const std::string& shown) {
  auto refused = [&shown](const std::string& why) {
    return Error{ErrorKind::invalid, 0,
                 shown + " " + why + "; it is not replaced. Choose another path for the archive."};
  };
  struct stat info;
  if (fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return io_error("cannot examine", shown, errno);
  if (S_ISLNK(info.st_mode)) return refused("is a symbolic link");
  if (!S_ISDIR(info.st_mode)) return refused("is no directory");
  FOUNDRY_ASSIGN(const FileDescriptor directory, open_directory_below(parent, name));
  if (fstatat(directory.get(), kManifestName, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
    return success();
  const Result<std::vector<DirectoryEntry>> entries = list_tree(directory.get(), shown);
  if (entries.ok() && entries.value().empty()) return success();
  return refused("is a directory that is no archive of Foundry");
}

// Makes every file and directory of the staging directory durable and removes what storing images left behind.
Status sync_tree(int staging, const std::string& shown) {
  FOUNDRY_ASSIGN(const std::vector<DirectoryEntry> entries, list_tree(staging, shown));
  for (const DirectoryEntry& entry : entries) {
    const std::string leaf = entry.name.substr(entry.name.rfind('/') + 1);
    if (!entry.directory && leaf.find(kTemporaryMark) != std::string::npos) {
      if (unlinkat(staging, entry.name.c_str(), 0) != 0)
        return io_error("cannot remove", shown + "/" + entry.name, errno);
      continue;
    }
    FOUNDRY_ASSIGN(const FileDescriptor fd,
                   entry.directory ? open_directory_below(staging, entry.name) : open_file_below(staging, entry.name));
    FOUNDRY_TRY(sync(fd.get(), shown + "/" + entry.name));
  }
  return sync(staging, shown);
}

}  // namespace

Result<Publication> Publication::begin(const std::string& target, PublishOptions options) {
  std::string path = target;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  Publication out;
  out.target_ = path;
  out.target_name_ = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  if (out.target_name_.empty() || out.target_name_ == "." || out.target_name_ == "..") {
    return Error{ErrorKind::invalid, 0, "\"" + target + "\" is no path for an archive."};
  }
  out.options_ = std::move(options);
  out.parent_ = FileDescriptor(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out.parent_) return io_error("cannot open the directory for the archive,", parent, errno);

  FOUNDRY_TRY(restore_set_aside(out.parent_.get(), out.target_name_, path));
  FOUNDRY_ASSIGN(out.existing_, identify(out.parent_.get(), out.target_name_, path));
  if (out.existing_) FOUNDRY_TRY(check_replaceable(out.parent_.get(), out.target_name_, path));

  FOUNDRY_ASSIGN(out.staging_name_, temporary_name(out.target_name_));
  out.staging_path_ = (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + out.staging_name_;
  if (mkdirat(out.parent_.get(), out.staging_name_.c_str(), 0777) != 0) {
    return io_error("cannot make the staging directory", out.staging_path_, errno);
  }
  out.owner_ = getpid();
  out.open_ = true;
  FOUNDRY_ASSIGN(out.staging_, open_directory_below(out.parent_.get(), out.staging_name_));
  flock(out.staging_.get(),
        LOCK_EX | LOCK_NB);  // tells remove_stale() of other pid namespaces that somebody is at work
  out.step(PublishStep::staged);
  return out;
}

Publication::Publication(Publication&& other) noexcept
    : target_(std::move(other.target_)),
      target_name_(std::move(other.target_name_)),
      staging_name_(std::move(other.staging_name_)),
      staging_path_(std::move(other.staging_path_)),
      parent_(std::move(other.parent_)),
      staging_(std::move(other.staging_)),
      existing_(other.existing_),
      options_(std::move(other.options_)),
      owner_(other.owner_),
      open_(std::exchange(other.open_, false)) {}

Publication& Publication::operator=(Publication&& other) noexcept {
  if (this == &other) return *this;
  std::destroy_at(this);
  return *std::construct_at(this, std::move(other));
}

Publication::~Publication() {
  // A forked child holds a copy of this object, but the staging directory is its parent's.
  if (open_ && owner_ == getpid()) static_cast<void>(abandon().ok());
}

Status Publication::abandon() {
  if (!open_) return success();
  open_ = false;
  staging_.reset();
  return remove_tree(parent_.get(), staging_name_);
}

void Publication::step(PublishStep step) const {
  if (options_.on_step) options_.on_step(step);
}

Error Publication::lost() const {
  return {
      ErrorKind::state, EEXIST,
      "Another SAVE published " + target_ + " while this one was running. Its archive stays; this one is discarded."};
}

Result<Published> Publication::publish(std::string_view manifest_json) {
  if (!open_) return Error{ErrorKind::state, 0, "The archive " + target_ + " was already published or abandoned."};
  if (manifest_json.empty()) return Error{ErrorKind::invalid, 0, "An archive needs a foundry.json with content."};
  Published report;
  report.path = target_;
  FOUNDRY_TRY(sync_tree(staging_.get(), staging_path_));
  step(PublishStep::files_synced);
  FOUNDRY_TRY(write_new_file(staging_.get(), kManifestName, std::as_bytes(std::span(manifest_json))));
  FOUNDRY_TRY(sync(staging_.get(), staging_path_));
  step(PublishStep::manifest_written);

  FOUNDRY_ASSIGN(const std::string old, replace());
  step(PublishStep::visible);
  open_ = false;
  flock(staging_.get(), LOCK_UN);
  if (Status synced = sync(parent_.get(), target_); !synced.ok()) {
    report.warnings.push_back("The archive is visible, but may not survive a power failure yet: " +
                              synced.error().text);
  }
  report.replaced = !old.empty();
  if (!old.empty()) {
    if (Status removed = remove_tree(parent_.get(), old); !removed.ok()) {
      report.warnings.push_back("The previous archive is still beside the new one, at " + old + ": " +
                                removed.error().text);
    }
  }
  step(PublishStep::old_removed);
  return report;
}

// Makes the staging directory the archive; returns the name that the previous archive has now, "" if there was none.
Result<std::string> Publication::replace() {
  FOUNDRY_ASSIGN(const ParentLock lock, ParentLock::take(parent_.get(), target_));
  FOUNDRY_ASSIGN(const std::optional<DirectoryIdentity> now, identify(parent_.get(), target_name_, target_));
  if (now != existing_) return lost();
  const int parent = parent_.get();
  const char* from = staging_name_.c_str();
  const char* to = target_name_.c_str();
  if (!existing_) {
    if (options_.exchange && renameat2(parent, from, parent, to, RENAME_NOREPLACE) == 0) return std::string();
    if (options_.exchange && errno == EEXIST) return lost();
    if (options_.exchange && !is_unsupported(errno))
      return io_error("cannot rename the staging directory to", target_, errno);
    // A directory replaces nothing but an empty directory, and an archive is never empty.
    if (renameat(parent, from, parent, to) == 0) return std::string();
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR) return lost();
    return io_error("cannot rename the staging directory to", target_, errno);
  }
  if (!options_.exchange) return set_aside_and_rename();
  if (renameat2(parent, from, parent, to, RENAME_EXCHANGE) != 0) {
    if (is_unsupported(errno)) return set_aside_and_rename();
    if (errno == ENOENT) return lost();
    return io_error("cannot exchange the staging directory with", target_, errno);
  }
  // Without locks another SAVE may have come between the check above and the exchange.
  FOUNDRY_ASSIGN(const std::optional<DirectoryIdentity> replaced, identify(parent, staging_name_, staging_path_));
  if (replaced == existing_) return staging_name_;
  if (renameat2(parent, from, parent, to, RENAME_EXCHANGE) != 0) return io_error("cannot put back", target_, errno);
  return lost();
}

// Two renames; a crash between them leaves the old archive whole under its .old name, from where restore_set_aside()
// takes it back.
Result<std::string> Publication::set_aside_and_rename() {
  FOUNDRY_ASSIGN(const std::string aside, temporary_name(target_name_, kSetAsideMark));
  const int parent = parent_.get();
  if (renameat(parent, target_name_.c_str(), parent, aside.c_str()) != 0) {
    return errno == ENOENT ? lost() : io_error("cannot set aside", target_, errno);
  }
  step(PublishStep::set_aside);
  if (renameat(parent, staging_name_.c_str(), parent, target_name_.c_str()) != 0) {
    const int code = errno;
    const bool back = renameat(parent, aside.c_str(), parent, target_name_.c_str()) == 0;
    if (code == ENOTEMPTY || code == EEXIST) return lost();
    Error error = io_error("cannot rename the staging directory to", target_, code);
    if (!back) error.text += " The previous archive is at " + aside + " beside it.";
    return error;
  }
  return aside;
}

}  // namespace foundry::archive
