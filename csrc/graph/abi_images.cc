#include "csrc/graph/abi_images.h"

#include <string>

#include "csrc/base/text.h"

namespace foundry::graph {

AbiImages::AbiImages(const driver::Driver& driver, const foundry_abi& abi) : driver_(driver), abi_(abi) { refresh(); }

uint64_t AbiImages::refresh() {
  // Another thread may load an image between the two calls: ask until the answer fits.
  std::vector<foundry_image> now;
  for (size_t count = abi_.images(nullptr, 0); count > now.size();) {
    now.resize(count);
    count = abi_.images(now.data(), now.size());
    if (count <= now.size()) now.resize(count);
  }

  bool unloaded = false;
  by_handle_.clear();
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i].loaded != 0) by_handle_[now[i].handle] = i;
    const auto known = by_id_.find(now[i].id);
    if (known == by_id_.end()) {
      by_id_.emplace(now[i].id, i);
    } else {
      unloaded = unloaded || (images_[known->second].loaded != 0 && now[i].loaded == 0);
      known->second = i;
    }
  }
  images_ = std::move(now);
  if (unloaded) ++generation_;
  return generation_;
}

const foundry_image* AbiImages::image(uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &images_[found->second];
}

const foundry_image* AbiImages::by_handle(const void* handle) const {
  const auto found = by_handle_.find(handle);
  return found == by_handle_.end() ? nullptr : &images_[found->second];
}

Result<uint64_t> AbiImages::resolve(const KernelHandle& handle, std::string_view name) {
  if (handle.kernel != nullptr && driver_.cuKernelGetLibrary != nullptr) {
    CUlibrary library = nullptr;
    if (driver_.cuKernelGetLibrary(&library, handle.kernel) == CUDA_SUCCESS) {
      if (const foundry_image* found = by_handle(library)) return found->id;
    }
  }
  if (handle.function != nullptr) {
    CUmodule module = nullptr;
    if (driver_.cuFuncGetModule(&module, handle.function) == CUDA_SUCCESS) {
      if (const foundry_image* found = by_handle(module)) return found->id;
    }
  }

  // The function of a library's kernel belongs to a module that nobody loaded by name: compare kernels of that name.
  const std::string symbol(name);
  for (auto image = images_.rbegin(); image != images_.rend(); ++image) {
    if (image->loaded == 0) continue;
    if (image->is_library == 0) {
      CUfunction function = nullptr;
      if (handle.function != nullptr &&
          driver_.cuModuleGetFunction(&function, static_cast<CUmodule>(image->handle), symbol.c_str()) ==
              CUDA_SUCCESS &&
          function == handle.function) {
        return image->id;
      }
      continue;
    }
    CUkernel kernel = nullptr;
    if (driver_.cuLibraryGetKernel(&kernel, static_cast<CUlibrary>(image->handle), symbol.c_str()) != CUDA_SUCCESS)
      continue;
    if (kernel == handle.kernel || static_cast<void*>(kernel) == static_cast<void*>(handle.function)) return image->id;
    CUfunction function = nullptr;
    if (handle.function != nullptr && driver_.cuKernelGetFunction(&function, kernel) == CUDA_SUCCESS &&
        function == handle.function) {
      return image->id;
    }
  }
  return Error{ErrorKind::unsupported, 0,
               format("the code image of kernel %s was not recorded (%zu others were); start the process with "
                      "`foundry run --save -- ...`, so that Foundry sees every image from the first one on",
                      demangle(symbol).c_str(), images_.size())};
}

}  // namespace foundry::graph
