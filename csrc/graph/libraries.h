// LOAD: the code images of an archive as CUlibraries, loaded in the order graphs need them, with their module globals.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/graph/restore.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

// Thread-safe. Any number of threads call load_next(); others wait for what they need.
class Libraries {
 public:
  // `order`: the images to load, each once.
  Libraries(const driver::Driver& driver, const GraphView& view, ImageProvider provider,
            std::span<const uint32_t> order);
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  // Loads the next image of the order and returns its index, whether or not it could be loaded; nothing when none is
  // left or after cancel(). Context current.
  std::optional<uint32_t> load_next();
  // Moves images to the front of what is still to be loaded.
  void hurry(std::span<const uint32_t> images);
  // Blocks until the image is loaded. The error is the image's; `state` after cancel(), `invalid` if it is not in the
  // order.
  Result<CUlibrary> wait(uint32_t image);
  // Address here of `module_globals[index]`; blocks until its image is loaded. Context current.
  Result<uint64_t> global(uint32_t index);
  void cancel();
  // Unloads everything. The context must be current, no graph that uses a kernel may be left, nobody may wait any more.
  void unload();

  struct Stats {
    double load_ms = 0, globals_ms = 0;
    uint64_t bytes = 0;
    uint32_t images = 0;
  };
  Stats stats() const;

 private:
  enum class Phase { unlisted, queued, loading, loaded, failed };
  struct Image {
    Phase phase = Phase::unlisted;
    CUlibrary library = nullptr;
    ImageBytes bytes;  // the driver reads them for as long as the library is loaded
    Error error;
  };

  Status load(uint32_t index, Image& image, Stats& spent);
  Status restore_globals(uint32_t index, CUlibrary library);
  Result<uint64_t> locate(uint32_t global, CUlibrary library);

  const driver::Driver& driver_;
  const GraphView& view_;
  const ImageProvider provider_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<uint32_t> queue_;
  std::vector<Image> images_;
  std::vector<std::vector<uint32_t>> globals_of_;             // by image: those with content to write
  const std::unique_ptr<std::atomic<uint64_t>[]> addresses_;  // by module global; 0: nobody asked yet
  bool cancelled_ = false;
  Stats stats_;
};

}  // namespace foundry::graph
