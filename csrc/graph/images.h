// Which loaded code image a kernel of a captured graph comes from.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string_view>

#include "csrc/base/result.h"

namespace foundry::graph {

// One kernel as its graph node names it: at least one of the two is set. A driver accepts a CUkernel where a CUfunction
// is asked for; such a handle stands in `kernel` here, so `function` is always a real CUfunction.
struct KernelHandle {
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
};

class ImageResolver {
 public:
  virtual ~ImageResolver() = default;

  // Looks again at what is loaded. Returns a number that changes whenever an image was unloaded: handles seen before
  // may then mean something else.
  virtual uint64_t refresh() = 0;
  // Id of the image that holds the kernel, stable for the life of the process. `unsupported`, naming the kernel and
  // what to do, where no recorded image holds it.
  virtual Result<uint64_t> resolve(const KernelHandle& handle, std::string_view name) = 0;
};

}  // namespace foundry::graph
