#include "csrc/archive/inventory.h"

#include <algorithm>
#include <string_view>

#include "csrc/archive/images.h"
#include "csrc/archive/publish.h"
#include "csrc/archive/reader.h"
#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

constexpr std::string_view kRecordFileSuffix = ".fdry";

Result<Hash128> hash_file(int archive, const std::string& name, uint64_t* bytes) {
  FOUNDRY_ASSIGN(const FileDescriptor file, open_file_below(archive, name));
  FOUNDRY_ASSIGN(*bytes, file_bytes(file.get(), name));
  Hasher hasher;
  std::vector<std::byte> buffer(std::min<uint64_t>(*bytes, 1u << 20));
  for (uint64_t at = 0; at < *bytes; at += buffer.size()) {
    const auto part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), *bytes - at));
    FOUNDRY_TRY(read_exactly(file.get(), at, part, name));
    hasher.add(part);
  }
  return hasher.digest();
}

}  // namespace

Result<FileDescription> describe_file(int archive, const std::string& name) {
  FileDescription out;
  out.name = name;
  if (name.ends_with(kRecordFileSuffix)) {
    FOUNDRY_ASSIGN(const FileKind kind, read_kind(archive, name));
    FOUNDRY_ASSIGN(const File file, File::open(archive, name, kind));
    out.type = kind_name(kind);
    out.bytes = file.bytes();
    out.hash = file.identity();
    return out;
  }
  FOUNDRY_ASSIGN(out.hash, hash_file(archive, name, &out.bytes));
  out.type = "other";
  if (const std::string images = std::string(kImagesDirectory) + "/"; name.starts_with(images)) {
    Hash128 expected;
    if (!parse_hex(std::string_view(name).substr(images.size()), &expected) || !(expected == out.hash)) {
      return Error{ErrorKind::corrupt, 0,
                   name +
                       ": its content does not have the hash that names it. The code image is "
                       "damaged; write the archive again."};
    }
    out.type = "image";
  }
  return out;
}

Result<std::vector<FileDescription>> inventory(int archive, const std::string& shown_as) {
  FOUNDRY_ASSIGN(const std::vector<DirectoryEntry> entries, list_tree(archive, shown_as));
  std::vector<FileDescription> out;
  for (const DirectoryEntry& entry : entries) {
    if (entry.directory || entry.name == kManifestName) continue;
    FOUNDRY_ASSIGN(FileDescription description, describe_file(archive, entry.name));
    out.push_back(std::move(description));
  }
  return out;
}

}  // namespace foundry::archive
