// The archive that the library's functions measure on, and their options.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/archive/files.h"
#include "csrc/archive/reader.h"
#include "csrc/base/result.h"
#include "csrc/driver/driver.h"
#include "csrc/graph/libraries.h"
#include "csrc/graph/restore.h"
#include "csrc/graph/tables.h"

namespace foundry::benchmarks {

inline constexpr graph::RestoreTuning kTuning;

// Mirrored by benchmarks/library.py, which takes the values from foundry_default_options().
struct Options {
  uint32_t graphs = 0, nodes = 0;  // synthetic graphs of that many kernel nodes in a chain; 0: those of the archive
  uint32_t passes = 2;             // of the driver loop; the first one finds the driver's pools empty
  uint32_t threads = 1;            // of the driver loop: 1, or 2 (one adds nodes, the other instantiates)
  uint32_t by_kernel = 0;          // nodes name a CUkernel instead of a CUfunction
  uint32_t edges_with_nodes = 0;   // default edges are given when a node is added
  // graph::RestoreTuning
  uint32_t image_threads = kTuning.image_threads, graph_threads = kTuning.graph_threads;
  uint32_t grow_heaps = kTuning.grow_heaps ? 1 : 0;
};

struct Archive {
  archive::FileDescriptor directory;
  archive::File file;
  graph::GraphView view;
  graph::GraphTables synthetic;  // nodes, edges and graphs, where asked for
  std::vector<uint32_t> order;
  uint32_t skipped = 0;
  uint64_t nodes = 0;

  // Bytes of record `images[index]`.
  Result<graph::ImageBytes> image(uint32_t index) const;
};

// The archive's graphs that can be added without its memory, or synthetic ones if the options ask for some.
Status open(const std::string& path, const Options& options, Archive& data);

// Loads the images on as many threads as the options say; the context must be current.
Status load(const driver::Driver& driver, const Options& options, graph::Libraries& libraries);

// For the C interface: JSON, or (1) what went wrong.
int answer(const Result<std::string>& result, char* out, size_t bytes);

}  // namespace foundry::benchmarks
