#include "csrc/archive/images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "csrc/archive/temporary.h"
#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

Error damaged(const std::string& name, const std::string& why) {
  return {ErrorKind::corrupt, 0, name + ": " + why + ". The code image is damaged; write the archive again."};
}

// Whether images/<hash> is there with the same content; another content under that name is an error.
Result<bool> is_stored(int archive, const std::string& name, std::span<const std::byte> image) {
  Result<FileDescriptor> file = open_file_below(archive, name);
  if (!file.ok()) {
    if (file.error().kind == ErrorKind::io && file.error().code == ENOENT) return false;
    return std::move(file).error();
  }
  FOUNDRY_ASSIGN(const uint64_t bytes, file_bytes(file->get(), name));
  if (bytes != image.size())
    return damaged(name, "it has " + bytes_text(bytes) + " instead of " + bytes_text(image.size()));
  FOUNDRY_ASSIGN(PrivateMemory stored, PrivateMemory::create(bytes));
  FOUNDRY_TRY(read_exactly(file->get(), 0, stored.bytes(), name));
  if (!std::equal(image.begin(), image.end(), stored.bytes().begin())) return damaged(name, "its content is another");
  return true;
}

}  // namespace

std::string image_file_name(const Hash128& hash) { return std::string(kImagesDirectory) + "/" + hex(hash); }

Result<StoredImage> store_image(int archive, std::span<const std::byte> image) {
  if (image.empty() || image.size() > kMostImageBytes) {
    return Error{ErrorKind::invalid, 0, "A code image of " + bytes_text(image.size()) + " cannot be stored."};
  }
  StoredImage out{hash(image), image.size(), false};
  const std::string name = image_file_name(out.hash);
  FOUNDRY_ASSIGN(const FileDescriptor directory, make_directory_below(archive, kImagesDirectory));
  FOUNDRY_ASSIGN(out.existed, is_stored(archive, name, image));
  if (out.existed) return out;
  // Written under a name of our own and renamed: a process that stores the same image at the same time replaces it by
  // equal bytes.
  FOUNDRY_ASSIGN(const std::string temporary, temporary_name(hex(out.hash)));
  Status written = write_new_file(directory.get(), temporary, image);
  if (written.ok() && renameat(directory.get(), temporary.c_str(), directory.get(), hex(out.hash).c_str()) != 0) {
    written = io_error("cannot rename", name, errno);
  }
  if (!written.ok()) {
    unlinkat(directory.get(), temporary.c_str(), 0);
    return std::move(written).error();
  }
  return out;
}

Result<PrivateMemory> read_image(int archive, const Hash128& expected, uint64_t bytes) {
  const std::string name = image_file_name(expected);
  FOUNDRY_ASSIGN(const FileDescriptor file, open_file_below(archive, name));
  FOUNDRY_ASSIGN(const uint64_t found, file_bytes(file.get(), name));
  if (found != bytes) {
    return damaged(name, format("it has %llu bytes, its record says %llu", static_cast<unsigned long long>(found),
                                static_cast<unsigned long long>(bytes)));
  }
  if (bytes > kMostImageBytes) return damaged(name, "it is " + bytes_text(bytes) + ", more than is read");
  FOUNDRY_ASSIGN(PrivateMemory out, PrivateMemory::create(bytes));
  FOUNDRY_TRY(read_exactly(file.get(), 0, out.bytes(), name));
  if (!(hash(out.bytes()) == expected)) return damaged(name, "its content does not have the hash that names it");
  return out;
}

}  // namespace foundry::archive
