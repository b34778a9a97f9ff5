// Stands in for a hook that recorded code images.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <vector>

#include "csrc/abi/foundry_abi.h"

namespace foundry::graph::testing {

// `foundry_abi::images` only. The latest one constructed answers, since the table holds plain functions.
class FakeAbi {
 public:
  FakeAbi() : previous_(active()) {
    active() = this;
    abi_.images = [](foundry_image* out, size_t capacity) {
      const auto& all = active()->images;
      std::copy_n(all.begin(), std::min(capacity, all.size()), out);
      return all.size();
    };
  }
  ~FakeAbi() { active() = previous_; }
  FakeAbi(const FakeAbi&) = delete;
  FakeAbi& operator=(const FakeAbi&) = delete;

  const foundry_abi& abi() const { return abi_; }
  void add_library(CUlibrary library) { add(library, 1); }
  void add_module(void* module) { add(module, 0); }
  std::vector<foundry_image> images;

 private:
  static FakeAbi*& active() {
    static FakeAbi* latest = nullptr;
    return latest;
  }
  void add(void* handle, uint32_t is_library) {
    foundry_image image{};
    image.id = images.size();
    image.handle = handle;
    image.is_library = is_library;
    image.loaded = 1;
    image.entry_point = image.source = "";
    images.push_back(image);
  }

  FakeAbi* previous_;
  foundry_abi abi_{};
};

}  // namespace foundry::graph::testing
