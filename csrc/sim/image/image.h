// Code images of the simulated driver: finds the entry for a device in a fatbin, fatbin wrapper or ELF and loads it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/sim/image/kernel.h"

namespace foundry::sim {

struct ImageKernel {
  std::string name;
  SimEntry entry = nullptr;  // args[i] points at parameter i, as kernelParams does
  std::vector<std::uint32_t> param_offsets, param_sizes;
  std::uint32_t static_shared_bytes = 0, max_threads_per_block = 0, registers = 0, local_bytes = 0;
  SimDim3 required_cluster;  // 0,0,0: none
};

struct ImageGlobal {
  std::string name;
  void* address = nullptr;  // inside this image's private copy
  std::size_t bytes = 0;
  bool constant = false;
};

// A private copy of one image: two loads of equal bytes share no variable. Unloaded by the destructor; kernels must not
// run, and addresses of globals must not be used, after it.
class Image {
 public:
  // Loads `data` (fatbin wrapper version 1 or 2, bare fatbin, or ELF) for a device of compute capability
  // cc_major.cc_minor. `available` is the number of readable bytes where the caller knows it, 0 where it does not (the
  // driver API passes a pointer only; unreadable memory is then an error, not a fault). On failure returns null, with
  // *code one of
  //   CUDA_ERROR_INVALID_VALUE         data is null
  //   CUDA_ERROR_INVALID_IMAGE         no known container, or a damaged one
  //   CUDA_ERROR_NO_BINARY_FOR_GPU     no entry for the device, or its entry is not a simulated image
  //   CUDA_ERROR_JIT_COMPILER_NOT_FOUND  PTX text
  //   CUDA_ERROR_NOT_SUPPORTED         the entry for the device is compressed
  //   CUDA_ERROR_OPERATING_SYSTEM      the host could not load it
  // and *text a sentence. code and text must not be null.
  static std::unique_ptr<Image> load(const void* data, int cc_major, int cc_minor, CUresult* code, std::string* text,
                                     std::size_t available = 0);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const std::vector<ImageKernel>& kernels() const { return kernels_; }
  const std::vector<ImageGlobal>& globals() const { return globals_; }
  // Architecture that the entry in use was compiled for, as 10 * major + minor.
  int arch() const { return arch_; }
  // True when the entry was "PTX": the simulator's stand-in for just-in-time compilation.
  bool from_ptx() const { return from_ptx_; }

 private:
  Image() = default;

  void* handle_ = nullptr;
  std::vector<ImageKernel> kernels_;
  std::vector<ImageGlobal> globals_;
  int arch_ = 0;
  bool from_ptx_ = false;
};

}  // namespace foundry::sim
