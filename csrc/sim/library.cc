// Libraries, modules, and the functions and variables in them.
#include "csrc/sim/library.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "csrc/sim/capture.h"
#include "csrc/sim/image/container.h"
#include "csrc/sim/lifetime.h"
#include "csrc/sim/memory.h"
#include "csrc/sim/stream.h"

namespace foundry::sim {

#define TABLE(type, handle, kind, name)                       \
  HandleTable<type, handle, kind>& name() {                   \
    static auto* table = new HandleTable<type, handle, kind>; \
    return *table;                                            \
  }
TABLE(Library, CUlibrary, Kind::kLibrary, libraries)
TABLE(Module, CUmodule, Kind::kModule, modules)
TABLE(Kernel, CUkernel, Kind::kKernel, kernels)
TABLE(Function, CUfunction, Kind::kFunction, functions)
#undef TABLE

bool lazy_loading() {
  static const bool lazy = [] {
    const char* text = std::getenv("CUDA_MODULE_LOADING");
    return text == nullptr || std::strcmp(text, "EAGER") != 0;
  }();
  return lazy;
}

namespace {

CUresult read_file(const char* path, std::vector<char>* bytes) {
  if (path == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null path");
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(CUDA_ERROR_FILE_NOT_FOUND, "cannot open %s", path);
  bytes->assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  bytes->push_back(0);  // PTX is text
  return CUDA_SUCCESS;
}

CUresult load_image(const void* data, std::size_t available, const Device& device, std::unique_ptr<Image>* image) {
  CUresult code = CUDA_ERROR_INVALID_IMAGE;
  std::string text;
  *image = Image::load(data, device.cc_major, device.cc_minor, &code, &text, available);
  return *image != nullptr ? CUDA_SUCCESS : fail(code, "%s", text.c_str());
}

std::shared_ptr<Module> make_module(Context& context, Library* library, std::unique_ptr<Image> image) {
  auto module = std::make_shared<Module>();
  module->context = &context;
  module->library = library;
  module->image = std::move(image);
  for (const ImageKernel& kernel : module->image->kernels()) {
    auto function = std::make_shared<Function>();
    function->module = module.get();
    function->context = &context;
    function->image = kernel;
    function->binary_version = module->image->arch();
    function->loaded = !lazy_loading();
    if (library != nullptr) function->kernel = library->kernels.at(kernel.name);
    function->handle = functions().add(function);
    module->functions[kernel.name] = function;
  }
  for (const ImageGlobal& global : module->image->globals()) {
    Range range;
    range.base = reinterpret_cast<std::uintptr_t>(global.address);
    range.bytes = global.bytes;
    range.kind = MemoryKind::kGlobal;
    range.device = context.device;
    range.context = context.handle;
    add_range(std::move(range));
  }
  module->handle = modules().add(module);
  return module;
}

// The context's work must have ended: the code goes.
void end_module(Module& module) {
  for (auto& [name, function] : module.functions) {
    function->module = nullptr;
    function->image.entry = nullptr;
    functions().remove(function->handle);
  }
  for (const ImageGlobal& global : module.image->globals()) {
    ranges().erase(reinterpret_cast<std::uintptr_t>(global.address));
  }
  CUmodule handle = module.handle;
  module.image.reset();
  modules().remove(handle);  // the last reference of a plain module
}

CUresult load_module(CUmodule* out, const void* data, std::size_t available) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (out == nullptr || data == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  std::unique_ptr<Image> image;
  SIM_TRY(load_image(data, available, *context->device, &image));
  *out = make_module(*context, nullptr, std::move(image))->handle;
  return CUDA_SUCCESS;
}

CUresult load_library(CUlibrary* out, const void* data, std::size_t available) {
  if (out == nullptr || data == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  auto library = std::make_shared<Library>();
  // Libraries belong to no context: the code of every device is chosen now, from memory that may be gone later.
  CUresult first_failure = CUDA_SUCCESS;
  Context* current = current_context_or_null();
  for (int i = 0; i < device_count(); ++i) {
    const Device& device = *device_at(i);
    std::unique_ptr<Image> image;
    CUresult loaded = load_image(data, available, device, &image);
    if (loaded != CUDA_SUCCESS) {
      if (current != nullptr && current->device == &device) return loaded;
      if (first_failure == CUDA_SUCCESS) first_failure = loaded;
      continue;
    }
    auto payload = select_payload(data, available, device.cc_major, device.cc_minor);
    if (auto* chosen = std::get_if<ImagePayload>(&payload)) library->payloads[i] = std::move(chosen->bytes);
    for (const ImageKernel& kernel : image->kernels()) {
      auto& object = library->kernels[kernel.name];
      if (object != nullptr) continue;
      object = std::make_shared<Kernel>();
      object->library = library.get();
      object->image = kernel;
    }
    library->images[i] = std::move(image);
  }
  if (library->images.empty()) return first_failure;
  for (auto& [name, kernel] : library->kernels) kernel->handle = kernels().add(kernel);
  library->handle = *out = libraries().add(library);
  return CUDA_SUCCESS;
}

CUresult find_library(CUlibrary handle, std::shared_ptr<Library>* library) {
  *library = libraries().find(handle);
  if (*library != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_HANDLE, "library %p was %s", static_cast<void*>(handle), libraries().why_not(handle));
}

CUresult find_module(CUmodule handle, std::shared_ptr<Module>* module) {
  *module = modules().find(handle);
  if (*module != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_HANDLE, "module %p was %s", static_cast<void*>(handle), modules().why_not(handle));
}

CUresult find_global(const Module& module, const char* name, CUdeviceptr* address, std::size_t* bytes) {
  if (name == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null name");
  for (const ImageGlobal& global : module.image->globals()) {
    if (global.name != name) continue;
    if (address != nullptr) *address = reinterpret_cast<CUdeviceptr>(global.address);
    if (bytes != nullptr) *bytes = global.bytes;
    return CUDA_SUCCESS;
  }
  return fail(CUDA_ERROR_NOT_FOUND, "the image has no variable %s", name);
}

}  // namespace

CUresult module_of(Library& library, Context& context, std::shared_ptr<Module>* module) {
  auto& mine = library.modules[&context];
  if (mine == nullptr) {
    int device = context.device->ordinal;
    std::unique_ptr<Image> image = std::move(library.images[device]);
    if (image == nullptr) {
      auto it = library.payloads.find(device);
      if (it == library.payloads.end()) {
        return fail(CUDA_ERROR_NO_BINARY_FOR_GPU, "the library has no code for device %d", device);
      }
      SIM_TRY(load_image(it->second.data(), it->second.size(), *context.device, &image));
    }
    mine = make_module(context, &library, std::move(image));
  }
  *module = mine;
  return CUDA_SUCCESS;
}

void release_modules_of(Context& context) {
  std::vector<std::shared_ptr<Module>> mine;
  for (const auto& [value, module] : modules().all()) {
    if (module->context == &context) mine.push_back(module);
  }
  for (const auto& module : mine) {
    if (module->library != nullptr) module->library->modules.erase(&context);
    end_module(*module);
  }
}

SIM_API(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), (mode)) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = lazy_loading() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

SIM_API(cuModuleLoad, (CUmodule * out, const char* path), (out, path)) {
  std::vector<char> bytes;
  SIM_TRY(read_file(path, &bytes));
  return load_module(out, bytes.data(), bytes.size());
}
SIM_API(cuModuleLoadData, (CUmodule * out, const void* data), (out, data)) { return load_module(out, data, 0); }
SIM_API(cuModuleLoadDataEx, (CUmodule * out, const void* data, unsigned count, CUjit_option* options, void** values),
        (out, data, count, options, values)) {
  return load_module(out, data, 0);
}
SIM_API(cuModuleLoadFatBinary, (CUmodule * out, const void* data), (out, data)) { return load_module(out, data, 0); }

SIM_API(cuModuleUnload, (CUmodule handle), (handle)) {
  std::shared_ptr<Module> module;
  SIM_TRY(find_module(handle, &module));
  if (module->library != nullptr) return fail(CUDA_ERROR_NOT_PERMITTED, "the module belongs to a library");
  SIM_TRY(forbid_in_capture("cuModuleUnload"));
  synchronize_context(*module->context);
  end_module(*module);
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetFunction, (CUfunction * out, CUmodule handle, const char* name), (out, handle, name)) {
  std::shared_ptr<Module> module;
  SIM_TRY(find_module(handle, &module));
  if (out == nullptr || name == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  auto it = module->functions.find(name);
  if (it == module->functions.end()) return fail(CUDA_ERROR_NOT_FOUND, "the image has no kernel %s", name);
  *out = it->second->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetFunctionCount, (unsigned* count, CUmodule handle), (count, handle)) {
  std::shared_ptr<Module> module;
  SIM_TRY(find_module(handle, &module));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}

SIM_API(cuModuleEnumerateFunctions, (CUfunction * out, unsigned count, CUmodule handle), (out, count, handle)) {
  std::shared_ptr<Module> module;
  SIM_TRY(find_module(handle, &module));
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [name, function] : module->functions) {
    if (count-- == 0) break;
    *out++ = function->handle;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetGlobal_v2, (CUdeviceptr * address, size_t* bytes, CUmodule handle, const char* name),
        (address, bytes, handle, name)) {
  std::shared_ptr<Module> module;
  SIM_TRY(find_module(handle, &module));
  return find_global(*module, name, address, bytes);
}

static CUresult check_library_options(CUlibraryOption* options, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (options == nullptr || options[i] >= CU_LIBRARY_NUM_OPTIONS || options[i] < 0) {
      return fail(CUDA_ERROR_INVALID_VALUE, "unknown library option");
    }
  }
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryLoadData,
        (CUlibrary * out, const void* data, CUjit_option* jit, void** jit_values, unsigned jit_count,
         CUlibraryOption* options, void** values, unsigned count),
        (out, data, jit, jit_values, jit_count, options, values, count)) {
  SIM_TRY(check_library_options(options, count));
  return load_library(out, data, 0);
}

SIM_API(cuLibraryLoadFromFile,
        (CUlibrary * out, const char* path, CUjit_option* jit, void** jit_values, unsigned jit_count,
         CUlibraryOption* options, void** values, unsigned count),
        (out, path, jit, jit_values, jit_count, options, values, count)) {
  SIM_TRY(check_library_options(options, count));
  std::vector<char> bytes;
  SIM_TRY(read_file(path, &bytes));
  return load_library(out, bytes.data(), bytes.size());
}

SIM_API(cuLibraryUnload, (CUlibrary handle), (handle)) {
  std::shared_ptr<Library> library;
  SIM_TRY(find_library(handle, &library));
  SIM_TRY(forbid_in_capture("cuLibraryUnload"));
  libraries().remove(handle);
  for (auto& [context, module] : library->modules) {
    synchronize_context(*context);
    end_module(*module);
  }
  for (auto& [name, kernel] : library->kernels) {
    kernel->library = nullptr;
    kernels().remove(kernel->handle);
  }
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetKernel, (CUkernel * out, CUlibrary handle, const char* name), (out, handle, name)) {
  std::shared_ptr<Library> library;
  SIM_TRY(find_library(handle, &library));
  if (out == nullptr || name == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  auto it = library->kernels.find(name);
  if (it == library->kernels.end()) return fail(CUDA_ERROR_NOT_FOUND, "the library has no kernel %s", name);
  *out = it->second->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetKernelCount, (unsigned* count, CUlibrary handle), (count, handle)) {
  std::shared_ptr<Library> library;
  SIM_TRY(find_library(handle, &library));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryEnumerateKernels, (CUkernel * out, unsigned count, CUlibrary handle), (out, count, handle)) {
  std::shared_ptr<Library> library;
  SIM_TRY(find_library(handle, &library));
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [name, kernel] : library->kernels) {
    if (count-- == 0) break;
    *out++ = kernel->handle;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetModule, (CUmodule * out, CUlibrary handle), (out, handle)) {
  std::shared_ptr<Library> library;
  SIM_TRY(find_library(handle, &library));
  Context* context;
  SIM_TRY(current_context(&context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module;
  SIM_TRY(module_of(*library, *context, &module));
  *out = module->handle;
  return CUDA_SUCCESS;
}

static CUresult library_global(CUlibrary handle, const char* name, CUdeviceptr* address, std::size_t* bytes) {
  std::shared_ptr<Library> library;
  SIM_TRY(find_library(handle, &library));
  Context* context;
  SIM_TRY(current_context(&context));
  std::shared_ptr<Module> module;
  SIM_TRY(module_of(*library, *context, &module));
  return find_global(*module, name, address, bytes);
}
SIM_API(cuLibraryGetGlobal, (CUdeviceptr * address, size_t* bytes, CUlibrary handle, const char* name),
        (address, bytes, handle, name)) {
  return library_global(handle, name, address, bytes);
}
SIM_API(cuLibraryGetManaged, (CUdeviceptr * address, size_t* bytes, CUlibrary handle, const char* name),
        (address, bytes, handle, name)) {
  return fail(CUDA_ERROR_NOT_FOUND, "simulated images have no managed variables");
}
SIM_API(cuLibraryGetUnifiedFunction, (void** pointer, CUlibrary handle, const char* symbol),
        (pointer, handle, symbol)) {
  return fail(CUDA_ERROR_NOT_FOUND, "simulated images have no unified functions");
}

}  // namespace foundry::sim
