// What SAVEs that died left beside an archive: staging directories to remove, old archives to put back.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "csrc/base/result.h"

namespace foundry::archive {

struct Stale {
  std::string path;
  pid_t pid = 0;  // of the SAVE that left it
  uint64_t bytes = 0;
  bool restorable = false;  // the old archive, set aside when its SAVE died before the new one was in place: put back
};

// Directories <archive>.tmp-<pid>-* and <archive>.old-<pid>-* beside the archive `target` whose process is gone and
// that nobody holds locked (a process of another pid namespace may). Those of live processes are not listed.
Result<std::vector<Stale>> list_stale(const std::string& target);
// Removes them, or puts the archive back, and returns what was found.
Result<std::vector<Stale>> remove_stale(const std::string& target);

// Puts back an archive that a dead SAVE set aside; used before a new one begins. `parent` is the directory that holds
// the archive called `name`.
Status restore_set_aside(int parent, const std::string& name, const std::string& shown);

}  // namespace foundry::archive
