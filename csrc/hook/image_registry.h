// The code images this process loaded, with their bytes: what kernels of a saved graph come from.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/hook/cuda_api.h"

#include "csrc/abi/foundry_abi.h"
#include "csrc/hook/interposed.h"

namespace foundry::hook {

// Whether loads are recorded: on SAVE, and in mode auto, which may become a SAVE.
bool records_images() noexcept;

// After a load succeeded. Bytes in a mapped file are referenced and the file is kept loaded; others are copied. What
// cannot be read is diagnosed, and a graph that uses it cannot be saved.
void record_image(const Row& row, void* handle, bool is_library, const void* image) noexcept;
void record_image_file(const Row& row, void* handle, bool is_library, const char* path) noexcept;

// Before an unload, since the handle may be used again at once; undone if the unload failed.
class Unloading {
 public:
  Unloading(const Row& row, void* handle, bool is_library) noexcept;
  void failed() noexcept;

 private:
  uint64_t id_ = ~uint64_t{0};
};

// Modules of a context that is gone are gone; libraries belong to no context.
void forget_context(CUcontext context) noexcept;

// foundry_abi.images
size_t images(foundry_image* out, size_t capacity);

}  // namespace foundry::hook
