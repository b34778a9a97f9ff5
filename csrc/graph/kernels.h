// LOAD: the functions of an archive as CUkernels with checked parameters and restored attributes, each looked up once.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "csrc/driver/driver.h"
#include "csrc/graph/libraries.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

// Time a building thread spent on other things than building.
struct LookupTime {
  double waiting_ms = 0;  // for images
  double kernels_ms = 0;
  uint32_t functions = 0;  // looked up
};

// Thread-safe.
class Kernels {
 public:
  Kernels(const driver::Driver& driver, const GraphView& view, Libraries& libraries, CUdevice device);

  // The kernel of `functions[index]`, ready to be added to graphs. Blocks until its image is loaded. Context current.
  Result<CUkernel> find(uint32_t index, LookupTime& time);
  std::string readable_name(uint32_t index) const;

 private:
  struct Slot {
    std::once_flag once;
    Result<CUkernel> kernel = static_cast<CUkernel>(nullptr);
  };

  Result<CUkernel> look_up(uint32_t index, LookupTime& time) const;
  Status check_params(CUkernel kernel, const archive::FunctionRecord& record) const;
  Status set_attributes(CUkernel kernel, const archive::FunctionRecord& record) const;

  const driver::Driver& driver_;
  const GraphView& view_;
  Libraries& libraries_;
  const CUdevice device_;
  const std::unique_ptr<Slot[]> slots_;
};

}  // namespace foundry::graph
