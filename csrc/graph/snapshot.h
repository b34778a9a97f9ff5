// SAVE: reads captured graphs into archive records. Deep copies only: nothing of the driver's stays referenced.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/graph/images.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

// A named range of memory that Foundry does not place itself.
struct NamedRange {
  uint64_t address = 0;
  uint64_t bytes = 0;
  std::string name;
};

// Not thread-safe. The context of the captured graphs must be current on the calling thread.
class Snapshotter {
 public:
  // Both must outlive the object.
  Snapshotter(const driver::Driver& driver, ImageResolver& images);
  ~Snapshotter();
  Snapshotter(const Snapshotter&) = delete;
  Snapshotter& operator=(const Snapshotter&) = delete;

  // Reads one captured graph, child graphs included, and returns its index in `tables().graphs`.
  // Errors: `unsupported` for what cannot be restored (names node, type and the kernels around it), `invalid` for an
  // empty name or one used before, `driver`. After an error everything is as it was before the call.
  Result<uint32_t> add(CUgraph graph, std::string_view name);

  // Graphs may copy from and to this pinned memory, and kernels may get its addresses: they move with it on LOAD.
  void register_host_range(NamedRange range);
  const std::vector<NamedRange>& host_ranges() const;
  // LOAD hands the event back under this name, created with `flags` (CUevent_flags; the driver cannot be asked for
  // them). Applies to graphs added before and afterwards; an event that no graph uses is not stored. Returns whether
  // one that was added does.
  bool name_event(CUevent event, std::string_view name, uint32_t flags);

  // The caller completes what a snapshot cannot know: outputs and generator of graphs, hash, size, format and source
  // of images, module globals, pointers.
  GraphTables& tables();
  const GraphTables& tables() const;
  // Id (ImageResolver) of each record in `tables().images`.
  const std::vector<uint64_t>& image_ids() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace foundry::graph
