// LOAD: the functions of an archive, loaded into the context, with checked parameters and restored attributes, each
// looked up once.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/graph/libraries.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

// Time a building thread spent on other things than building.
struct LookupTime {
  double waiting_ms = 0;  // for images, and for other threads that look up the same function
  double kernels_ms = 0;
  uint32_t functions = 0;  // looked up
};

// Thread-safe.
class Kernels {
 public:
  Kernels(const driver::Driver& driver, const GraphView& view, Libraries& libraries, CUdevice device);

  // `functions[index]`, ready to be added to graphs. Blocks until its image is loaded. Context current.
  Result<CUfunction> find(uint32_t index, LookupTime& time) {
    const Slot& slot = slots_[index];
    if (const CUfunction function = slot.ready.load(std::memory_order_acquire)) return function;
    return find_first(index, time);
  }
  // Looks up what the archive has of an image that was loaded; an error is left to those who need the function.
  void look_up_all(uint32_t image, LookupTime& time);
  std::string readable_name(uint32_t index) const;

 private:
  struct Slot {
    std::once_flag once;
    std::atomic<CUfunction> ready{nullptr};
    Result<CUfunction> function = static_cast<CUfunction>(nullptr);
  };

  Result<CUfunction> find_first(uint32_t index, LookupTime& time);
  Result<CUfunction> look_up(uint32_t index, LookupTime& time) const;
  Status check_params(CUkernel kernel, const archive::FunctionRecord& record) const;
  Status set_attributes(CUkernel kernel, CUfunction function, const archive::FunctionRecord& record) const;

  const driver::Driver& driver_;
  const GraphView& view_;
  Libraries& libraries_;
  const CUdevice device_;
  const std::unique_ptr<Slot[]> slots_;
  std::vector<std::vector<uint32_t>> functions_of_;  // by image
};

}  // namespace foundry::graph
