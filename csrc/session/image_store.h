// SAVE: stores the code images that graphs use, slim for this GPU, and the module variables that have changed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/graph/snapshot.h"
#include "csrc/session/process.h"

namespace foundry::session {

struct ImageStoreReport {
  uint32_t images = 0;
  uint64_t bytes = 0;
  std::vector<std::string> notes;
};

// Completes tables.images (hash, bytes, format) of a snapshot by writing images/<hash> below `directory`, those that
// only graphs use that were left out excepted. `capability` is 10 * major + minor of the device.
Result<ImageStoreReport> store_images(int directory, const Process& process, uint32_t capability,
                                      const std::vector<uint64_t>& image_ids, graph::GraphTables& tables);

struct ModuleGlobalsReport {
  std::vector<std::string> notes;
  std::map<uint32_t, std::string> unreadable;  // image index -> why its variables are not known
};

// Fills tables.module_globals and tables.global_content: every variable of the used images with its address here, and
// its content where that is not what the image starts with. A context of the device must be current.
Result<ModuleGlobalsReport> read_module_globals(const Process& process, uint32_t capability,
                                                const std::vector<uint64_t>& image_ids, graph::GraphTables& tables);

}  // namespace foundry::session
