#include "csrc/archive/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

constexpr int kDeepestTree = 8;

// "a/b/c" -> {"a", "b", "c"}; nothing that could leave the directory.
Result<std::vector<std::string>> components(const std::string& name) {
  std::vector<std::string> out;
  size_t begin = 0;
  while (true) {
    const size_t end = std::min(name.find('/', begin), name.size());
    std::string part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string::npos || part.size() > 255) {
      return Error{ErrorKind::invalid, 0, "\"" + name + "\" is no name of a file inside an archive."};
    }
    out.push_back(std::move(part));
    if (end == name.size()) return out;
    begin = end + 1;
  }
}

Error open_error(const std::string& name, int code) {
  if (code == ELOOP) {
    return {ErrorKind::corrupt, code, name + " is a symbolic link; an archive holds none, and none is followed."};
  }
  return io_error("cannot open", name, code);
}

Result<FileDescriptor> open_component(int directory, const std::string& part, int flags, const std::string& shown) {
  int fd;
  do {
    fd = openat(directory, part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    int code = errno;
    struct stat info;
    // With O_DIRECTORY the kernel says ENOTDIR for a link, too.
    if (code == ENOTDIR && fstatat(directory, part.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode)) {
      code = ELOOP;
    }
    return open_error(shown, code);
  }
  return FileDescriptor(fd);
}

// Opens the directory that holds the last component; `leaf` receives that component.
Result<FileDescriptor> open_parent(int directory, const std::string& name, std::string* leaf) {
  FOUNDRY_ASSIGN(const std::vector<std::string> parts, components(name));
  FOUNDRY_ASSIGN(FileDescriptor at, open_component(directory, ".", O_RDONLY | O_DIRECTORY, name));
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    FOUNDRY_ASSIGN(at, open_component(at.get(), parts[i], O_RDONLY | O_DIRECTORY, name));
  }
  *leaf = parts.back();
  return at;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using DirectoryStream = std::unique_ptr<DIR, CloseDirectory>;

Result<std::vector<std::string>> names_in(int directory, const std::string& shown) {
  const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return io_error("cannot list", shown, errno);
  DirectoryStream stream(fdopendir(copy));
  if (!stream) {
    const int code = errno;
    close(copy);
    return io_error("cannot list", shown, code);
  }
  std::vector<std::string> out;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) return io_error("cannot list", shown, errno);
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") out.emplace_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Status list_level(int directory, const std::string& prefix, const std::string& shown_as, uint64_t most, int depth,
                  std::vector<DirectoryEntry>& out) {
  const std::string shown = prefix.empty() ? shown_as : shown_as + "/" + prefix;
  if (depth > kDeepestTree) {
    return Error{ErrorKind::corrupt, 0, shown + ": directories are nested too deeply for an archive."};
  }
  FOUNDRY_ASSIGN(const std::vector<std::string> names, names_in(directory, shown));
  for (const std::string& name : names) {
    struct stat info;
    if (fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return io_error("cannot examine", shown + "/" + name, errno);
    }
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
      return Error{ErrorKind::corrupt, 0,
                   shown + "/" + name + " is a symbolic link or special file; an archive holds none."};
    }
    if (out.size() >= most) {
      return Error{ErrorKind::corrupt, 0, shown_as + " holds more than " + std::to_string(most) + " files."};
    }
    const std::string relative = prefix.empty() ? name : prefix + "/" + name;
    out.push_back({relative, S_ISDIR(info.st_mode), static_cast<uint64_t>(info.st_size),
                   static_cast<uint32_t>(info.st_mode & 07777), static_cast<uint32_t>(info.st_uid)});
    if (S_ISDIR(info.st_mode)) {
      FOUNDRY_ASSIGN(const FileDescriptor below,
                     open_component(directory, name, O_RDONLY | O_DIRECTORY, shown + "/" + name));
      FOUNDRY_TRY(list_level(below.get(), relative, shown_as, most, depth + 1, out));
    }
  }
  return success();
}

Status remove_level(int parent, const std::string& name, int depth) {
  if (unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return success();
  if (errno != EISDIR && errno != EPERM) return io_error("cannot remove", name, errno);
  if (depth > 4 * kDeepestTree) {
    return Error{ErrorKind::invalid, 0,
                 name + " is nested too deeply to be a leftover of Foundry; it was not removed."};
  }
  {
    FOUNDRY_ASSIGN(const FileDescriptor directory, open_component(parent, name, O_RDONLY | O_DIRECTORY, name));
    FOUNDRY_ASSIGN(const std::vector<std::string> names, names_in(directory.get(), name));
    for (const std::string& entry : names) FOUNDRY_TRY(remove_level(directory.get(), entry, depth + 1));
  }
  if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return io_error("cannot remove", name, errno);
  }
  return success();
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

void FileDescriptor::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

namespace {

// What is mapped for `bytes` of content: whole pages, one zero byte at least behind the end.
uint64_t mapped_bytes(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes / page + 1) * page;
}

}  // namespace

Result<PrivateMemory> PrivateMemory::create(uint64_t bytes) {
  const uint64_t size = mapped_bytes(bytes);
  void* at = size < bytes
                 ? MAP_FAILED
                 : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return Error{ErrorKind::out_of_memory, ENOMEM, "There is no host memory for " + bytes_text(bytes) + "."};
  }
  if (size >= (4u << 20)) madvise(at, size, MADV_HUGEPAGE);  // fewer faults; a refusal does not matter
  PrivateMemory out;
  out.data_ = static_cast<std::byte*>(at);
  out.bytes_ = bytes;
  return out;
}

PrivateMemory::~PrivateMemory() {
  if (data_ != nullptr) munmap(data_, mapped_bytes(bytes_));
}

PrivateMemory::PrivateMemory(PrivateMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PrivateMemory& PrivateMemory::operator=(PrivateMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Error io_error(const std::string& what, const std::string& name, int code) {
  return {ErrorKind::io, code, what + " " + name + ": " + std::generic_category().message(code) + "."};
}

Result<FileDescriptor> open_directory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error("cannot open the archive", path, errno);
  return FileDescriptor(fd);
}

Result<FileDescriptor> open_file_below(int directory, const std::string& name) {
  std::string leaf;
  FOUNDRY_ASSIGN(const FileDescriptor parent, open_parent(directory, name, &leaf));
  // O_NONBLOCK: a FIFO in the place of the file must not block.
  FOUNDRY_ASSIGN(FileDescriptor file, open_component(parent.get(), leaf, O_RDONLY | O_NONBLOCK, name));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return io_error("cannot examine", name, errno);
  if (!S_ISREG(info.st_mode)) return Error{ErrorKind::corrupt, 0, name + " is not a regular file."};
  return file;
}

Result<FileDescriptor> open_directory_below(int directory, const std::string& name) {
  std::string leaf;
  FOUNDRY_ASSIGN(const FileDescriptor parent, open_parent(directory, name, &leaf));
  return open_component(parent.get(), leaf, O_RDONLY | O_DIRECTORY, name);
}

Result<FileDescriptor> make_directory_below(int directory, const std::string& name) {
  std::string leaf;
  FOUNDRY_ASSIGN(const FileDescriptor parent, open_parent(directory, name, &leaf));
  if (mkdirat(parent.get(), leaf.c_str(), 0777) != 0 && errno != EEXIST) {
    return io_error("cannot make the directory", name, errno);
  }
  return open_component(parent.get(), leaf, O_RDONLY | O_DIRECTORY, name);
}

Result<FileDescriptor> create_file_below(int directory, const std::string& name) {
  std::string leaf;
  FOUNDRY_ASSIGN(const FileDescriptor parent, open_parent(directory, name, &leaf));
  const int fd = openat(parent.get(), leaf.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return io_error("cannot create", name, errno);
  return FileDescriptor(fd);
}

Result<uint64_t> file_bytes(int fd, const std::string& name) {
  struct stat info;
  if (fstat(fd, &info) != 0) return io_error("cannot examine", name, errno);
  return static_cast<uint64_t>(info.st_size);
}

Status read_exactly(int fd, uint64_t offset, std::span<std::byte> out, const std::string& name) {
  while (!out.empty()) {
    const ssize_t n = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("cannot read", name, errno);
    if (n == 0) {
      return Error{
          ErrorKind::corrupt, 0,
          name + " ends at byte " + std::to_string(offset) + ", " + std::to_string(out.size()) + " bytes too early."};
    }
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return success();
}

Status write_all_at(int fd, uint64_t offset, std::span<const std::byte> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("cannot write", name, errno);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return success();
}

Status sync(int fd, const std::string& name) {
  if (fsync(fd) != 0) return io_error("cannot flush to disk", name, errno);
  return success();
}

Result<std::string> read_text_file(int directory, const std::string& name, uint64_t limit) {
  FOUNDRY_ASSIGN(const FileDescriptor file, open_file_below(directory, name));
  FOUNDRY_ASSIGN(const uint64_t bytes, file_bytes(file.get(), name));
  if (bytes > limit) {
    return Error{ErrorKind::corrupt, 0,
                 name + " is " + bytes_text(bytes) + "; at most " + bytes_text(limit) + " are read."};
  }
  std::string out(bytes, '\0');
  FOUNDRY_TRY(read_exactly(file.get(), 0, std::as_writable_bytes(std::span(out.data(), out.size())), name));
  return out;
}

Status write_new_file(int directory, const std::string& name, std::span<const std::byte> bytes) {
  FOUNDRY_ASSIGN(const FileDescriptor file, create_file_below(directory, name));
  FOUNDRY_TRY(write_all_at(file.get(), 0, bytes, name));
  return sync(file.get(), name);
}

Result<std::vector<DirectoryEntry>> list_tree(int directory, const std::string& shown_as, uint64_t most) {
  std::vector<DirectoryEntry> out;
  FOUNDRY_TRY(list_level(directory, "", shown_as, most, 0, out));
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

Status remove_tree(int parent, const std::string& name) { return remove_level(parent, name, 0); }

Result<std::vector<std::string>> trust_warnings(int directory, const std::string& shown_as) {
  std::vector<std::string> out;
  struct stat own, above;
  if (fstat(directory, &own) != 0 || fstatat(directory, "..", &above, 0) != 0) {
    return io_error("cannot examine", shown_as, errno);
  }
  const uint32_t user = geteuid();
  auto foreign = [user](uint32_t owner) { return owner != user && owner != 0; };
  if ((above.st_mode & S_IWOTH) != 0 && (above.st_mode & S_ISVTX) == 0) {
    out.push_back("Everybody may write to the directory that holds " + shown_as + ", and so replace the archive.");
  }
  FOUNDRY_ASSIGN(std::vector<DirectoryEntry> entries, list_tree(directory, shown_as));
  entries.insert(entries.begin(),
                 {".", true, 0, static_cast<uint32_t>(own.st_mode), static_cast<uint32_t>(own.st_uid)});
  uint64_t writable = 0, others = 0;
  const DirectoryEntry *first_writable = nullptr, *first_other = nullptr;
  for (const DirectoryEntry& entry : entries) {
    if ((entry.mode & S_IWOTH) != 0 && writable++ == 0) first_writable = &entry;
    if (foreign(entry.owner) && others++ == 0) first_other = &entry;
  }
  if (writable > 0) {
    out.push_back(format("%llu entries of %s can be written by everybody, the first is %s.",
                         static_cast<unsigned long long>(writable), shown_as.c_str(), first_writable->name.c_str()));
  }
  if (others > 0) {
    out.push_back(
        format("%llu entries of %s belong to another user than this process's (uid %u) or root, the first "
               "is %s (uid %u).",
               static_cast<unsigned long long>(others), shown_as.c_str(), user, first_other->name.c_str(),
               first_other->owner));
  }
  return out;
}

}  // namespace foundry::archive
