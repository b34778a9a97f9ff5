// File access below an archive's directory: no symbolic link is followed, every error names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/result.h"

namespace foundry::archive {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

// Anonymous private memory, zero-filled, page aligned, with at least one zero byte behind its end. Bytes of a file
// are copied into it once, so that a file that shrinks or changes later cannot hurt its readers.
class PrivateMemory {
 public:
  static Result<PrivateMemory> create(uint64_t bytes);
  PrivateMemory() = default;
  ~PrivateMemory();
  PrivateMemory(PrivateMemory&&) noexcept;
  PrivateMemory& operator=(PrivateMemory&&) noexcept;
  std::span<std::byte> bytes() { return {data_, static_cast<size_t>(bytes_)}; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(bytes_)}; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// errno of the failed call as an `io` error: "<what> <name>: <system's text>".
Error io_error(const std::string& what, const std::string& name, int code);

// The archive's own directory. `path` itself may be a symbolic link; nothing below it may be.
Result<FileDescriptor> open_directory(const std::string& path);
// `name` is relative: components separated by '/', neither empty nor "." nor "..". Every component is opened with
// O_NOFOLLOW. Returns a readable regular file.
Result<FileDescriptor> open_file_below(int directory, const std::string& name);
Result<FileDescriptor> open_directory_below(int directory, const std::string& name);
// Makes the directory if it is missing (its parent must exist) and opens it.
Result<FileDescriptor> make_directory_below(int directory, const std::string& name);

// Creates a file that must not exist, readable and writable; its parent directory must exist.
Result<FileDescriptor> create_file_below(int directory, const std::string& name);

Result<uint64_t> file_bytes(int fd, const std::string& name);
// Fills `out` from `offset`; a file that ends earlier is an error of kind `corrupt`.
Status read_exactly(int fd, uint64_t offset, std::span<std::byte> out, const std::string& name);
Status write_all_at(int fd, uint64_t offset, std::span<const std::byte> bytes, const std::string& name);
Status sync(int fd, const std::string& name);

// A whole small file (foundry.json): at most `limit` bytes.
Result<std::string> read_text_file(int directory, const std::string& name, uint64_t limit = 16ull << 20);
// Creates `name` (which must not exist), writes and fsyncs it.
Status write_new_file(int directory, const std::string& name, std::span<const std::byte> bytes);

struct DirectoryEntry {
  std::string name;  // relative to the walked directory, '/' between components
  bool directory = false;
  uint64_t bytes = 0;
  uint32_t mode = 0, owner = 0;
};
// Everything below `directory`, sorted by name. A symbolic link or special file, more than `most` entries or more
// than 8 levels are errors.
Result<std::vector<DirectoryEntry>> list_tree(int directory, const std::string& shown_as, uint64_t most = 1u << 20);
// Removes the entry `name` of `parent` and everything below it; follows no link.
Status remove_tree(int parent, const std::string& name);

// Sentences about who could have written this archive: other owner than this user or root, writable by everybody.
// Empty when there is nothing to say. Reads no file's content.
Result<std::vector<std::string>> trust_warnings(int directory, const std::string& shown_as);

}  // namespace foundry::archive
