#include "tests/unit/graph/fake_driver.h"

#include <algorithm>
#include <cstring>

#include "csrc/graph/node_attributes.h"
#include "tests/unit/graph/fake_graphs.h"

namespace foundry::graph::testing {

int attribute_of(const FakeKernel& kernel, const std::map<int, int>& set, int id) {
  if (const auto found = set.find(id); found != set.end()) return found->second;
  if (id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    const auto fixed = kernel.spec.attributes.find(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    return kSharedWithoutOptIn - (fixed == kernel.spec.attributes.end() ? 0 : fixed->second);
  }
  return id == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ? -1 : 0;
}

namespace {

FakeDriver* active = nullptr;
thread_local CUcontext current = nullptr;

CUresult CUDAAPI get_name(CUresult, const char** text) {
  *text = "CUDA_ERROR_OF_FAKE";
  return CUDA_SUCCESS;
}
CUresult CUDAAPI get_current(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI set_current(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI get_device(CUdevice* device) {
  ENTER(cuCtxGetDevice, true);
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI exchange_mode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(now, *mode);
  return CUDA_SUCCESS;
}

// ---- images

CUresult CUDAAPI library_load(CUlibrary* out, const void* code, CUjit_option*, void**, unsigned,
                              CUlibraryOption* options, void** values, unsigned count) {
  ENTER(cuLibraryLoadData, true);
  FakeDriver& fake = FakeDriver::now();
  const auto spec = fake.images.find(static_cast<const char*>(code));
  if (spec == fake.images.end()) return CUDA_ERROR_INVALID_IMAGE;
  fake.note("load " + spec->first);
  auto* library = new FakeLibrary;
  library->image = spec->first;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) library->preserved = values[i] != nullptr;
  }
  for (const auto& [name, function] : spec->second.functions) {
    auto kernel = std::make_unique<FakeKernel>();
    kernel->name = name;
    kernel->spec = function;
    kernel->library = library;
    kernel->attributes = function.attributes;
    kernel->function.kernel = kernel.get();
    kernel->function.attributes = function.attributes;
    library->kernels.emplace(name, std::move(kernel));
  }
  library->globals = spec->second.globals;
  ++fake.live_libraries;
  *out = as<std::remove_pointer_t<CUlibrary>>(library);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI library_unload(CUlibrary library) {
  ENTER(cuLibraryUnload, true);
  FakeDriver::now().note("unload");
  --FakeDriver::now().live_libraries;
  delete as<FakeLibrary>(library);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI library_kernel(CUkernel* out, CUlibrary library, const char* name) {
  ENTER(cuLibraryGetKernel, true);
  auto& kernels = as<FakeLibrary>(library)->kernels;
  const auto found = kernels.find(name);
  if (found == kernels.end()) return CUDA_ERROR_NOT_FOUND;
  FakeDriver::now().note(std::string("get ") + name);
  *out = as<std::remove_pointer_t<CUkernel>>(found->second.get());
  return CUDA_SUCCESS;
}
CUresult CUDAAPI library_global(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  ENTER(cuLibraryGetGlobal, true);
  auto& globals = as<FakeLibrary>(library)->globals;
  const auto found = globals.find(name);
  if (found == globals.end()) return CUDA_ERROR_NOT_FOUND;
  *address = reinterpret_cast<CUdeviceptr>(found->second.data());
  *bytes = found->second.size();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_function(CUfunction* out, CUkernel kernel) {
  ENTER(cuKernelGetFunction, true);
  *out = as<std::remove_pointer_t<CUfunction>>(&as<FakeKernel>(kernel)->function);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_library(CUlibrary* out, CUkernel kernel) {
  ENTER(cuKernelGetLibrary, true);
  if (!has_tag(kernel, Tag::kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *out = as<std::remove_pointer_t<CUlibrary>>(as<FakeKernel>(kernel)->library);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_name(const char** name, CUkernel kernel) {
  if (!has_tag(kernel, Tag::kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *name = as<FakeKernel>(kernel)->name.c_str();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI function_name(const char** name, CUfunction function) {
  if (!has_tag(function, Tag::function)) return CUDA_ERROR_INVALID_HANDLE;
  *name = as<FakeFunction>(function)->kernel->name.c_str();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI function_module(CUmodule* module, CUfunction function) {
  if (!has_tag(function, Tag::function)) return CUDA_ERROR_INVALID_HANDLE;
  *module = as<std::remove_pointer_t<CUmodule>>(&as<FakeFunction>(function)->kernel->library->module);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI module_function(CUfunction*, CUmodule, const char*) { return CUDA_ERROR_NOT_FOUND; }
CUresult param_info(const FakeKernel& kernel, size_t index, size_t* offset, size_t* bytes) {
  const auto& failures = FakeDriver::now().param_info_failures;
  if (const auto failure = failures.find(kernel.name); failure != failures.end()) return failure->second;
  if (index >= kernel.spec.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel.spec.params[index].offset;
  *bytes = kernel.spec.params[index].bytes;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI kernel_param_info(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
  return param_info(*as<FakeKernel>(kernel), index, offset, bytes);
}
CUresult CUDAAPI function_param_info(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  return param_info(*as<FakeFunction>(function)->kernel, index, offset, bytes);
}
CUresult CUDAAPI kernel_get_attribute(int* value, CUfunction_attribute id, CUkernel kernel, CUdevice) {
  *value = attribute_of(*as<FakeKernel>(kernel), as<FakeKernel>(kernel)->attributes, id);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI function_get_attribute(int* value, CUfunction_attribute id, CUfunction function) {
  ENTER(cuFuncGetAttribute, true);
  *value = attribute_of(*as<FakeFunction>(function)->kernel, as<FakeFunction>(function)->attributes, id);
  return CUDA_SUCCESS;
}
bool fixed_by_compiler(const FakeKernel& kernel, int id) {
  return id >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH && id <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH &&
         kernel.spec.attributes.count(id) != 0;
}
CUresult CUDAAPI kernel_set_attribute(CUfunction_attribute id, int value, CUkernel kernel, CUdevice) {
  ENTER(cuKernelSetAttribute, true);
  if (fixed_by_compiler(*as<FakeKernel>(kernel), id)) return CUDA_ERROR_NOT_PERMITTED;
  as<FakeKernel>(kernel)->attributes[id] = value;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI function_set_attribute(CUfunction function, CUfunction_attribute id, int value) {
  ENTER(cuFuncSetAttribute, true);
  if (fixed_by_compiler(*as<FakeFunction>(function)->kernel, id)) return CUDA_ERROR_NOT_PERMITTED;
  as<FakeFunction>(function)->attributes[id] = value;
  return CUDA_SUCCESS;
}

// ---- memory, streams, events

CUresult CUDAAPI pointer_attributes(unsigned count, CUpointer_attribute* ids, void** values, CUdeviceptr address) {
  ENTER(cuPointerGetAttributes, true);
  const auto& known = FakeDriver::now().pointer_types;
  const auto found = known.find(address);
  for (unsigned i = 0; i < count; ++i) {
    const bool found_it = found != known.end();
    switch (ids[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(values[i]) = found_it ? found->second : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) = found_it ? address & ~uint64_t{0xfff} : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<size_t*>(values[i]) = found_it ? 0x1000 : 0;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI copy_to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync, true);
  if (!has_tag(stream, Tag::stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI stream_create(CUstream* stream, unsigned) {
  ENTER(cuStreamCreate, true);
  ++FakeDriver::now().live_streams;
  *stream = reinterpret_cast<CUstream>(new FakeObject(Tag::stream));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI stream_destroy(CUstream stream) {
  --FakeDriver::now().live_streams;
  delete as<FakeObject>(stream);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI stream_synchronize(CUstream) { return CUDA_SUCCESS; }
CUresult CUDAAPI event_create(CUevent* event, unsigned) {
  ENTER(cuEventCreate, true);
  ++FakeDriver::now().live_events;
  *event = reinterpret_cast<CUevent>(new FakeObject(Tag::event));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI event_destroy(CUevent event) {
  --FakeDriver::now().live_events;
  delete as<FakeObject>(event);
  return CUDA_SUCCESS;
}

}  // namespace

FakeDriver::FakeDriver() {
  active = this;
  current = context();
  driver::Driver& t = table_;
  t.cuGetErrorName = t.cuGetErrorString = get_name;
  t.cuCtxGetCurrent = get_current;
  t.cuCtxSetCurrent = set_current;
  t.cuCtxGetDevice = get_device;
  t.cuThreadExchangeStreamCaptureMode = exchange_mode;
  t.cuLibraryLoadData = library_load;
  t.cuLibraryUnload = library_unload;
  t.cuLibraryGetKernel = library_kernel;
  t.cuLibraryGetGlobal = library_global;
  t.cuKernelGetFunction = kernel_function;
  t.cuKernelGetLibrary = kernel_library;
  t.cuKernelGetName = kernel_name;
  t.cuFuncGetName = function_name;
  t.cuFuncGetModule = function_module;
  t.cuModuleGetFunction = module_function;
  t.cuKernelGetParamInfo = kernel_param_info;
  t.cuFuncGetParamInfo = function_param_info;
  t.cuKernelGetAttribute = kernel_get_attribute;
  t.cuFuncGetAttribute = function_get_attribute;
  t.cuKernelSetAttribute = kernel_set_attribute;
  t.cuFuncSetAttribute = function_set_attribute;
  t.cuPointerGetAttributes = pointer_attributes;
  t.cuMemcpyHtoDAsync = copy_to_device;
  t.cuStreamCreate = stream_create;
  t.cuStreamDestroy = stream_destroy;
  t.cuStreamSynchronize = stream_synchronize;
  t.cuEventCreate = event_create;
  t.cuEventDestroy = event_destroy;
  bind_graphs(t);
}

FakeDriver::~FakeDriver() {
  current = nullptr;
  active = nullptr;
}

FakeDriver& FakeDriver::now() { return *active; }

CUresult FakeDriver::enter(const char* call, bool needs_context) {
  if (on_call) on_call(call);
  if (needs_context && current != context()) {
    ++violations;
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const std::lock_guard lock(mutex_);
  const auto failure = failures.find(call);
  return failure == failures.end() ? CUDA_SUCCESS : failure->second;
}

void FakeDriver::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  log.push_back(text);
}

std::vector<std::string> FakeDriver::calls(const std::string& prefix) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> found;
  for (const std::string& text : log) {
    if (text.rfind(prefix, 0) == 0) found.push_back(text);
  }
  return found;
}

CUlibrary FakeDriver::load(const std::string& image) {
  CUlibrary library = nullptr;
  library_load(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  return library;
}

CUkernel FakeDriver::kernel(CUlibrary library, const std::string& name) {
  CUkernel kernel = nullptr;
  library_kernel(&kernel, library, name.c_str());
  return kernel;
}

}  // namespace foundry::graph::testing
