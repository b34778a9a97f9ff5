// ImageResolver over the images that the hook recorded (foundry_abi.images).
#pragma once

#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/abi/foundry_abi.h"
#include "csrc/driver/driver.h"
#include "csrc/graph/images.h"

namespace foundry::graph {

// Not thread-safe: one snapshot at a time.
class AbiImages : public ImageResolver {
 public:
  // Both must outlive the object.
  AbiImages(const driver::Driver& driver, const foundry_abi& abi);

  uint64_t refresh() override;
  Result<uint64_t> resolve(const KernelHandle& handle, std::string_view name) override;

  // All images recorded at the last refresh, in order of loading.
  const std::vector<foundry_image>& images() const { return images_; }
  // Null if no image of that id was recorded.
  const foundry_image* image(uint64_t id) const;

 private:
  const foundry_image* by_handle(const void* handle) const;

  const driver::Driver& driver_;
  const foundry_abi& abi_;
  std::vector<foundry_image> images_;
  boost::unordered_flat_map<const void*, size_t> by_handle_;  // loaded images only; the latest of a handle
  boost::unordered_flat_map<uint64_t, size_t> by_id_;
  uint64_t generation_ = 0;
};

}  // namespace foundry::graph
