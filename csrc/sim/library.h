// Code: libraries and their kernels, modules and their functions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/sim/context.h"
#include "csrc/sim/handles.h"
#include "csrc/sim/image/image.h"

namespace foundry::sim {

struct Kernel;
struct Library;
struct Module;

using FunctionAttributes = std::map<CUfunction_attribute, int>;

// The facts of one kernel of an image, and the attributes that a client may change.
struct Function {
  CUfunction handle = nullptr;
  Module* module = nullptr;  // null once it is unloaded
  Context* context = nullptr;
  ImageKernel image;  // the entry is gone when `module` is null
  int binary_version = 0;
  std::shared_ptr<Kernel> kernel;  // null for the function of a plain module
  bool loaded = false;             // lazy loading: code reaches the device at the first use
  FunctionAttributes attributes;   // what cuFuncSetAttribute changed
};

struct Module {
  CUmodule handle = nullptr;
  Context* context = nullptr;
  Library* library = nullptr;  // null for a plain module
  std::unique_ptr<Image> image;
  std::map<std::string, std::shared_ptr<Function>> functions;
};

struct Kernel {
  CUkernel handle = nullptr;
  Library* library = nullptr;                    // null once it is unloaded
  ImageKernel image;                             // facts only; the entry is that of a context's function
  std::map<int, FunctionAttributes> attributes;  // by device: what cuKernelSetAttribute changed
};

struct Library {
  CUlibrary handle = nullptr;
  std::map<int, std::vector<std::byte>> payloads;  // code by device, copied
  std::map<int, std::unique_ptr<Image>> images;    // loaded, not yet used by a context
  std::map<std::string, std::shared_ptr<Kernel>> kernels;
  std::map<Context*, std::shared_ptr<Module>> modules;
};

HandleTable<Library, CUlibrary, Kind::kLibrary>& libraries();
HandleTable<Module, CUmodule, Kind::kModule>& modules();
HandleTable<Kernel, CUkernel, Kind::kKernel>& kernels();
HandleTable<Function, CUfunction, Kind::kFunction>& functions();

bool lazy_loading();

// A CUfunction, or a CUkernel that is passed as one: then the function of the context (null: the current one).
CUresult find_function(CUfunction handle, Context* context, std::shared_ptr<Function>* function);
CUresult find_kernel(CUkernel handle, std::shared_ptr<Kernel>* kernel);
CUresult function_of(const std::shared_ptr<Kernel>& kernel, Context& context, std::shared_ptr<Function>* function);
CUresult module_of(Library& library, Context& context, std::shared_ptr<Module>* module);

// The attribute in force: the function's own, else its kernel's, else the image's or the driver's default.
CUresult function_attribute(const Function& function, CUfunction_attribute which, int* value);
int attribute_value(const Function& function, CUfunction_attribute which);

}  // namespace foundry::sim
