// Containers built in memory, and the built images, for tests of the code-image loader.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "csrc/sim/image/container.h"
#include "csrc/sim/image/image.h"

namespace foundry::sim {

using Bytes = std::vector<char>;

// A file that the build passes in an environment variable.
inline Bytes file_of(const char* variable) {
  const char* path = std::getenv(variable);
  if (path == nullptr) return {};
  std::ifstream in(path, std::ios::binary);
  return Bytes((std::istreambuf_iterator<char>(in)), {});
}

template <class T>
void put(Bytes& to, std::size_t at, T value) {
  std::memcpy(to.data() + at, &value, sizeof value);
}

struct TestEntry {
  std::uint16_t kind;
  std::uint32_t arch;
  Bytes payload;
  std::uint64_t flags = 0x11;
};

inline Bytes make_fatbin(const std::vector<TestEntry>& entries) {
  Bytes out(16);
  for (const auto& entry : entries) {
    const std::size_t at = out.size();
    out.resize(at + 64);
    put<std::uint16_t>(out, at, entry.kind);
    put<std::uint16_t>(out, at + 2, 0x0101);
    put<std::uint32_t>(out, at + 4, 64);
    put<std::uint64_t>(out, at + 8, (entry.payload.size() + 7) / 8 * 8);
    put<std::uint32_t>(out, at + 28, entry.arch);
    put<std::uint64_t>(out, at + 40, entry.flags);
    out.insert(out.end(), entry.payload.begin(), entry.payload.end());
    out.resize((out.size() + 7) / 8 * 8);
  }
  put<std::uint32_t>(out, 0, kFatbinMagic);
  put<std::uint16_t>(out, 4, 1);
  put<std::uint16_t>(out, 6, 16);
  put<std::uint64_t>(out, 8, out.size() - 16);
  return out;
}

struct Wrapper {
  std::uint32_t magic = kWrapperMagic;
  std::uint32_t version = 1;
  const void* data = nullptr;
  const void* objects = nullptr;
};

struct Attempt {
  std::unique_ptr<Image> image;
  CUresult code = CUDA_ERROR_UNKNOWN;
  std::string text;
};

inline Attempt load(const void* data, int arch, std::size_t available = 0) {
  Attempt attempt;
  attempt.image = Image::load(data, arch / 10, arch % 10, &attempt.code, &attempt.text, available);
  return attempt;
}
inline Attempt load(const Bytes& bytes, int arch) { return load(bytes.data(), arch, bytes.size()); }

inline const ImageKernel* kernel_named(const Image& image, const std::string& name) {
  for (const auto& kernel : image.kernels()) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

inline const ImageGlobal* global_named(const Image& image, const std::string& name) {
  for (const auto& global : image.globals()) {
    if (global.name == name) return &global;
  }
  return nullptr;
}

// Runs a kernel; every argument is passed by its address, as kernelParams does.
template <class... Args>
void run(const Image& image, const std::string& name, const SimLaunch& launch, Args... args) {
  void* pointers[] = {&args..., nullptr};
  kernel_named(image, name)->entry(&launch, pointers);
}

}  // namespace foundry::sim
