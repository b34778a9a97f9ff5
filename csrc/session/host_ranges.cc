#include "csrc/session/host_ranges.h"

#include "csrc/archive/strings.h"
#include "csrc/base/text.h"

namespace foundry::session {

Status check_pinned(const driver::Driver& driver, const graph::NamedRange& range) {
  const auto refuse = [&](const char* why) {
    return Error{ErrorKind::invalid, 0,
                 format("host memory '%s' (%s at %s) %s", range.name.c_str(), bytes_text(range.bytes).c_str(),
                        hex(range.address).c_str(), why)};
  };
  if (range.bytes == 0 || range.address == 0 || range.bytes > UINT64_MAX - range.address) return refuse("is empty");
  for (const uint64_t address : {range.address, range.address + range.bytes - 1}) {
    unsigned int type = 0;
    CUdeviceptr device = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void* into[] = {&type, &device};
    const CUresult code = driver.cuPointerGetAttributes(2, attributes, into, address);
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_INVALID_VALUE) return driver.error(code, "cuPointerGetAttributes");
    if (code != CUDA_SUCCESS || type != CU_MEMORYTYPE_HOST) {
      return refuse("is not pinned; a graph that uses it needs pinned memory (pin_memory=True, cuMemHostAlloc)");
    }
    if (device != address) return refuse("has another address on the device; graphs that use it cannot be kept");
  }
  return success();
}

Status check_new_range(const driver::Driver& driver, const std::vector<graph::NamedRange>& known,
                       const graph::NamedRange& range) {
  if (range.name.empty() || !archive::is_text(range.name)) {
    return Error{ErrorKind::invalid, 0, "host memory needs a name in UTF-8"};
  }
  FOUNDRY_TRY(check_pinned(driver, range));
  for (const graph::NamedRange& other : known) {
    if (other.name == range.name) {
      return Error{
          ErrorKind::invalid, 0,
          format("host memory is registered as '%s' already: every range needs a name of its own", range.name.c_str())};
    }
    if (range.address < other.address + other.bytes && other.address < range.address + range.bytes) {
      return Error{ErrorKind::invalid, 0,
                   format("host memory '%s' overlaps '%s'; register what both cover once", range.name.c_str(),
                          other.name.c_str())};
    }
  }
  return success();
}

}  // namespace foundry::session
