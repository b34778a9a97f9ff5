// Texture objects over linear memory: made, read back and destroyed. Simulated kernels do not sample. No arrays, and
// therefore no surfaces.
#include <map>

#include "csrc/sim/memory.h"

namespace foundry::sim {

static std::map<CUtexObject, CUDA_RESOURCE_DESC>& textures() {
  static auto* table = new std::map<CUtexObject, CUDA_RESOURCE_DESC>;
  return *table;
}

SIM_API(cuTexObjectCreate,
        (CUtexObject * out, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* texture,
         const CUDA_RESOURCE_VIEW_DESC* view),
        (out, resource, texture, view)) {
  Context* context;
  SIM_TRY(current_context(&context));
  if (out == nullptr || resource == nullptr || texture == nullptr)
    return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  if (resource->resType == CU_RESOURCE_TYPE_LINEAR) {
    SIM_TRY(check_device_range(resource->res.linear.devPtr, resource->res.linear.sizeInBytes, Access::kRead));
  } else if (resource->resType == CU_RESOURCE_TYPE_PITCH2D) {
    const auto& p = resource->res.pitch2D;
    SIM_TRY(check_device_range(p.devPtr, p.height * p.pitchInBytes, Access::kRead));
  } else {
    return fail(CUDA_ERROR_NOT_SUPPORTED, "arrays are not simulated");
  }
  static CUtexObject last = 0;
  *out = ++last;
  textures()[*out] = *resource;
  return CUDA_SUCCESS;
}

SIM_API(cuTexObjectDestroy, (CUtexObject object), (object)) {
  return textures().erase(object) == 1 ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_VALUE, "not a live texture object");
}

SIM_API(cuTexObjectGetResourceDesc, (CUDA_RESOURCE_DESC * out, CUtexObject object), (out, object)) {
  auto it = textures().find(object);
  if (out == nullptr || it == textures().end()) return fail(CUDA_ERROR_INVALID_VALUE, "not a live texture object");
  *out = it->second;
  return CUDA_SUCCESS;
}

SIM_API(cuSurfObjectCreate, (CUsurfObject * out, const CUDA_RESOURCE_DESC* resource), (out, resource)) {
  return fail(CUDA_ERROR_NOT_SUPPORTED, "arrays are not simulated");
}
SIM_API(cuSurfObjectDestroy, (CUsurfObject object), (object)) {
  return fail(CUDA_ERROR_INVALID_VALUE, "not a live surface object");
}

}  // namespace foundry::sim
