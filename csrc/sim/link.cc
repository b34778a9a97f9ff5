// The link API for what needs no linker: one finished image goes in and comes out again.
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "csrc/sim/context.h"
#include "csrc/sim/image/container.h"

namespace foundry::sim {
namespace {

std::map<CUlinkState, std::vector<char>>& links() {
  static auto* table = new std::map<CUlinkState, std::vector<char>>;
  return *table;
}

CUresult find_link(CUlinkState state, std::vector<char>** image) {
  auto it = links().find(state);
  if (it == links().end())
    return fail(CUDA_ERROR_INVALID_HANDLE, "link state %p is not live", static_cast<void*>(state));
  *image = &it->second;
  return CUDA_SUCCESS;
}

CUresult add(CUlinkState state, CUjitInputType type, const char* data, std::size_t size) {
  std::vector<char>* image;
  SIM_TRY(find_link(state, &image));
  if (data == nullptr || size == 0) return fail(CUDA_ERROR_INVALID_VALUE, "no data");
  if (type == CU_JIT_INPUT_PTX) return fail(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX is not simulated");
  if (type != CU_JIT_INPUT_CUBIN && type != CU_JIT_INPUT_FATBINARY) {
    return fail(CUDA_ERROR_NOT_SUPPORTED, "input type %d is not simulated", static_cast<int>(type));
  }
  if (!image->empty()) return fail(CUDA_ERROR_NOT_SUPPORTED, "only one input is simulated");
  image->assign(data, data + size);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuLinkCreate_v2, (unsigned count, CUjit_option* options, void** values, CUlinkState* out),
        (count, options, values, out)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  static std::uintptr_t last = 0;
  *out = reinterpret_cast<CUlinkState>((std::uintptr_t{0xe} << 40) | (++last << 4));
  links()[*out];
  return CUDA_SUCCESS;
}

SIM_API(cuLinkAddData_v2,
        (CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name, unsigned count,
         CUjit_option* options, void** values),
        (state, type, data, size, name, count, options, values)) {
  return add(state, type, static_cast<const char*>(data), size);
}

SIM_API(cuLinkAddFile_v2,
        (CUlinkState state, CUjitInputType type, const char* path, unsigned count, CUjit_option* options,
         void** values),
        (state, type, path, count, options, values)) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(CUDA_ERROR_FILE_NOT_FOUND, "cannot open %s", path);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return add(state, type, bytes.data(), bytes.size());
}

SIM_API(cuLinkComplete, (CUlinkState state, void** image_out, size_t* size), (state, image_out, size)) {
  std::vector<char>* image;
  SIM_TRY(find_link(state, &image));
  if (image_out == nullptr || image->empty()) return fail(CUDA_ERROR_INVALID_VALUE, "nothing was added");
  *image_out = image->data();  // lives until cuLinkDestroy
  if (size != nullptr) *size = image->size();
  return CUDA_SUCCESS;
}

SIM_API(cuLinkDestroy, (CUlinkState state), (state)) {
  return links().erase(state) == 1 ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_HANDLE, "not a live link state");
}

}  // namespace foundry::sim
