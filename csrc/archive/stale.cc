#include "csrc/archive/stale.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "csrc/archive/files.h"
#include "csrc/archive/temporary.h"

namespace foundry::archive {
namespace {

struct Leftover {
  std::string name;
  pid_t pid;
  bool set_aside;
};

struct Place {
  FileDescriptor parent;
  std::string prefix, name;  // target = prefix + name
};

bool is_running(pid_t pid) { return kill(pid, 0) == 0 || errno == EPERM; }

bool is_locked(int parent, const std::string& name) {
  const Result<FileDescriptor> directory = open_directory_below(parent, name);
  if (!directory.ok()) return false;
  if (flock(directory.value().get(), LOCK_EX | LOCK_NB) == 0) return false;  // released when it is closed
  return errno == EWOULDBLOCK;
}

bool exists(int parent, const std::string& name) {
  struct stat info;
  return fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

bool is_directory(int parent, const std::string& name) {
  struct stat info;
  return fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

Result<std::vector<Leftover>> leftovers(int parent, const std::string& target, const std::string& shown) {
  const int copy = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return io_error("cannot list the directory of", shown, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(copy), closedir);
  if (!stream) {
    const int code = errno;
    close(copy);
    return io_error("cannot list the directory of", shown, code);
  }
  std::vector<Leftover> out;
  while (const dirent* entry = readdir(stream.get())) {
    const std::string name = entry->d_name;
    const auto staging = temporary_owner(name, target, kTemporaryMark);
    const auto aside = temporary_owner(name, target, kSetAsideMark);
    if (!staging && !aside) continue;
    const pid_t pid = staging ? *staging : *aside;
    if (!is_directory(parent, name) || is_running(pid) || is_locked(parent, name)) continue;
    out.push_back({name, pid, aside.has_value()});
  }
  std::sort(out.begin(), out.end(), [](const Leftover& a, const Leftover& b) { return a.name < b.name; });
  return out;
}

Result<Place> place_of(const std::string& target) {
  std::string path = target;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  Place out;
  out.prefix = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  out.name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string parent = out.prefix.empty() ? "." : out.prefix;
  out.parent = FileDescriptor(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out.parent) return io_error("cannot open", parent, errno);
  return out;
}

uint64_t tree_bytes(int parent, const std::string& name) {
  const Result<FileDescriptor> directory = open_directory_below(parent, name);
  if (!directory.ok()) return 0;
  const Result<std::vector<DirectoryEntry>> entries = list_tree(directory.value().get(), name);
  uint64_t total = 0;
  if (entries.ok())
    for (const DirectoryEntry& entry : entries.value()) total += entry.directory ? 0 : entry.bytes;
  return total;
}

std::vector<Stale> describe(const Place& place, const std::vector<Leftover>& found) {
  std::vector<Stale> out;
  bool missing = !exists(place.parent.get(), place.name);
  for (const Leftover& leftover : found) {
    // At most one can be put back; there never are two, as every SAVE puts one back before it sets another aside.
    const bool restorable = leftover.set_aside && missing;
    missing = missing && !restorable;
    out.push_back(
        {place.prefix + leftover.name, leftover.pid, tree_bytes(place.parent.get(), leftover.name), restorable});
  }
  return out;
}

}  // namespace

Result<std::vector<Stale>> list_stale(const std::string& target) {
  FOUNDRY_ASSIGN(const Place place, place_of(target));
  FOUNDRY_ASSIGN(const std::vector<Leftover> found, leftovers(place.parent.get(), place.name, target));
  return describe(place, found);
}

Result<std::vector<Stale>> remove_stale(const std::string& target) {
  FOUNDRY_ASSIGN(const Place place, place_of(target));
  FOUNDRY_ASSIGN(const std::vector<Leftover> found, leftovers(place.parent.get(), place.name, target));
  std::vector<Stale> out = describe(place, found);
  for (size_t i = 0; i < found.size(); ++i) {
    if (out[i].restorable) {
      FOUNDRY_TRY(restore_set_aside(place.parent.get(), place.name, target));
    } else {
      FOUNDRY_TRY(remove_tree(place.parent.get(), found[i].name));
    }
  }
  return out;
}

Status restore_set_aside(int parent, const std::string& name, const std::string& shown) {
  if (exists(parent, name)) return success();
  FOUNDRY_ASSIGN(const std::vector<Leftover> found, leftovers(parent, name, shown));
  for (const Leftover& leftover : found) {
    if (!leftover.set_aside) continue;
    // Set aside means a file system without exchange, which may lack NOREPLACE as well; a directory that is renamed
    // replaces nothing but an empty one.
    if (renameat(parent, leftover.name.c_str(), parent, name.c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST) {
      return io_error("cannot put back the archive", shown, errno);
    }
    return success();
  }
  return success();
}

}  // namespace foundry::archive
