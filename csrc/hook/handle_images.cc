// Loads and unloads of code images.
#include "csrc/hook/handlers.h"

#include <type_traits>

#include "csrc/hook/image_registry.h"
#include "csrc/hook/note.h"

namespace foundry::hook {
namespace {

template <class Handle>
CUresult loaded_from_memory(const Row& row, CUresult result, Handle* handle, const void* image) {
  if (result == CUDA_SUCCESS && handle != nullptr && records_images()) {
    record_image(row, *handle, std::is_same_v<Handle, CUlibrary>, image);
  }
  return result;
}

template <class Handle>
CUresult loaded_from_file(const Row& row, CUresult result, Handle* handle, const char* path) {
  if (result == CUDA_SUCCESS && handle != nullptr && records_images()) {
    record_image_file(row, *handle, std::is_same_v<Handle, CUlibrary>, path);
  }
  return result;
}

template <class Next, class Handle>
CUresult unload(const Row& row, Next next, Handle handle) {
  Unloading unloading(row, handle, std::is_same_v<Handle, CUlibrary>);
  const CUresult result = next(handle);
  if (result != CUDA_SUCCESS) unloading.failed();
  return result;
}

template <class Next, class Owner>
CUresult variable(const Row& row, Next next, CUdeviceptr* address, size_t* bytes, Owner owner, const char* name) {
  const CUresult result = next(address, bytes, owner, name);
  if (result == CUDA_SUCCESS) note_state(row, address == nullptr ? 0 : *address, bytes == nullptr ? 0 : *bytes);
  return result;
}

}  // namespace

CUresult module_load(const Row& row, PFN_cuModuleLoad_v2000 next, CUmodule* module, const char* path) {
  return loaded_from_file(row, next(module, path), module, path);
}

CUresult module_load_data(const Row& row, PFN_cuModuleLoadData_v2000 next, CUmodule* module, const void* image) {
  return loaded_from_memory(row, next(module, image), module, image);
}

CUresult module_load_data_ex(const Row& row, PFN_cuModuleLoadDataEx_v2010 next, CUmodule* module, const void* image,
                             unsigned int option_count, CUjit_option* options, void** values) {
  return loaded_from_memory(row, next(module, image, option_count, options, values), module, image);
}

CUresult module_unload(const Row& row, PFN_cuModuleUnload_v2000 next, CUmodule module) {
  return unload(row, next, module);
}

CUresult library_load_data(const Row& row, PFN_cuLibraryLoadData_v12000 next, CUlibrary* library, const void* code,
                           CUjit_option* jit_options, void** jit_values, unsigned int jit_count,
                           CUlibraryOption* library_options, void** library_values, unsigned int library_count) {
  const CUresult result =
      next(library, code, jit_options, jit_values, jit_count, library_options, library_values, library_count);
  return loaded_from_memory(row, result, library, code);
}

CUresult library_load_file(const Row& row, PFN_cuLibraryLoadFromFile_v12000 next, CUlibrary* library, const char* path,
                           CUjit_option* jit_options, void** jit_values, unsigned int jit_count,
                           CUlibraryOption* library_options, void** library_values, unsigned int library_count) {
  const CUresult result =
      next(library, path, jit_options, jit_values, jit_count, library_options, library_values, library_count);
  return loaded_from_file(row, result, library, path);
}

CUresult library_unload(const Row& row, PFN_cuLibraryUnload_v12000 next, CUlibrary library) {
  return unload(row, next, library);
}

CUresult module_variable(const Row& row, PFN_cuModuleGetGlobal_v3020 next, CUdeviceptr* address, size_t* bytes,
                         CUmodule module, const char* name) {
  return variable(row, next, address, bytes, module, name);
}

CUresult library_variable(const Row& row, PFN_cuLibraryGetGlobal_v12000 next, CUdeviceptr* address, size_t* bytes,
                          CUlibrary library, const char* name) {
  return variable(row, next, address, bytes, library, name);
}

}  // namespace foundry::hook
