// Memory of the process that an image lies in: which mapped file it belongs to, and reading it without faulting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace foundry::hook {

// The loaded file (program or shared library) that has `address` in its file contents.
struct MappedFile {
  std::string path;    // "" for the program itself
  uint64_t bytes = 0;  // from `address` to the end of its segment
  bool writable = false;
};
std::optional<MappedFile> mapped_file(const void* address);

// Keeps a shared library loaded for the rest of the process. False if it cannot be had by that path.
bool keep_loaded(const std::string& path);

// Copies memory of this process; false where part of it is not readable.
bool copy_memory(const void* from, void* to, size_t bytes);

// Copies a file; nullopt (errno set) if it cannot be read or has more than `most` bytes.
std::optional<std::string> read_file(const char* path, uint64_t most);

}  // namespace foundry::hook
