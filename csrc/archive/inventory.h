// What an archive consists of: name, size and hash of every file, as foundry.json lists them.
#pragma once

#include <string>
#include <vector>

#include "csrc/archive/files.h"
#include "csrc/archive/hash.h"
#include "csrc/base/result.h"

namespace foundry::archive {

struct FileDescription {
  std::string name;  // relative to the archive
  std::string type;  // "graphs", "memory", "journal", "golden", "image" or "other"
  uint64_t bytes = 0;
  Hash128 hash{};  // .fdry: its identity, after every byte was checked; others: hash of the content
};

// Reads and checks one file. An image must have the hash that its name says; a .fdry file must be undamaged.
Result<FileDescription> describe_file(int archive, const std::string& name);

// Every file but foundry.json, sorted by name. Works on a staging directory as well.
Result<std::vector<FileDescription>> inventory(int archive, const std::string& shown_as);

}  // namespace foundry::archive
