#include "csrc/graph/kernels.h"

#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "csrc/graph/node_attributes.h"

namespace foundry::graph {

Kernels::Kernels(const driver::Driver& driver, const GraphView& view, Libraries& libraries, CUdevice device)
    : driver_(driver),
      view_(view),
      libraries_(libraries),
      device_(device),
      slots_(std::make_unique<Slot[]>(view.functions.size())) {}

std::string Kernels::readable_name(uint32_t index) const {
  return demangle(std::string(view_.text(view_.functions[index].name)));
}

Result<CUkernel> Kernels::find(uint32_t index, LookupTime& time) {
  Slot& slot = slots_[index];
  std::call_once(slot.once, [&] { slot.kernel = look_up(index, time); });
  return slot.kernel;
}

Result<CUkernel> Kernels::look_up(uint32_t index, LookupTime& time) const {
  const archive::FunctionRecord& record = view_.functions[index];
  Stopwatch watch;
  FOUNDRY_ASSIGN(const CUlibrary library, libraries_.wait(record.image));
  time.waiting_ms += watch.lap();
  const auto prepare = [&]() -> Result<CUkernel> {
    CUkernel kernel = nullptr;
    const std::string name(view_.text(record.name));
    FOUNDRY_CU(driver_, cuLibraryGetKernel, &kernel, library, name.c_str());
    FOUNDRY_TRY(check_params(kernel, record));
    FOUNDRY_TRY(set_attributes(kernel, record));
    return kernel;
  };
  Result<CUkernel> kernel = prepare();
  time.kernels_ms += watch.lap();
  ++time.functions;
  return kernel;
}

Status Kernels::check_params(CUkernel kernel, const archive::FunctionRecord& record) const {
  for (uint32_t i = 0; i <= record.param_count; ++i) {
    size_t offset = 0;
    size_t bytes = 0;
    const CUresult code = driver_.cuKernelGetParamInfo(kernel, i, &offset, &bytes);
    if (i == record.param_count && code == CUDA_ERROR_INVALID_VALUE) break;  // no further parameter, as recorded
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_INVALID_VALUE) return driver_.error(code, "cuKernelGetParamInfo");
    if (i == record.param_count) {
      return Error{ErrorKind::mismatch, 0, format("it takes more than the %u parameters recorded", record.param_count)};
    }
    const archive::ParamRecord& recorded = view_.params[record.first_param + i];
    if (code != CUDA_SUCCESS || offset != recorded.offset || bytes != recorded.bytes) {
      return Error{ErrorKind::mismatch, 0,
                   format("its parameter %u was recorded at offset %u with %u bytes; here it %s", i, recorded.offset,
                          recorded.bytes,
                          code != CUDA_SUCCESS ? "does not exist"
                                               : format("has offset %zu and %zu bytes", offset, bytes).c_str())};
    }
  }
  return success();
}

Status Kernels::set_attributes(CUkernel kernel, const archive::FunctionRecord& record) const {
  if (record.attribute_count == 0) return success();
  CUfunction function = nullptr;  // of the current context: opt-ins of the kernel do not reach one that exists
  FOUNDRY_CU(driver_, cuKernelGetFunction, &function, kernel);
  for (uint32_t i = 0; i < record.attribute_count; ++i) {
    const archive::FunctionAttributeRecord& attribute = view_.function_attributes[record.first_attribute + i];
    const FunctionAttributeInfo* info = function_attribute_info(attribute.attribute);
    if (info == nullptr) {
      return Error{ErrorKind::mismatch, 0,
                   format("the archive sets its function attribute %d, which this version does not restore",
                          attribute.attribute)};
    }
    const auto fail = [&](CUresult code, const char* call) {
      return driver_.error(code, call).within(format("function attribute \"%s\" = %d", info->words, attribute.value));
    };
    int now = 0;
    CUresult code = driver_.cuKernelSetAttribute(info->id, attribute.value, kernel, device_);
    // What the compiler fixed cannot be set, and need not be.
    if (code == CUDA_ERROR_NOT_PERMITTED &&
        driver_.cuKernelGetAttribute(&now, info->id, kernel, device_) == CUDA_SUCCESS && now == attribute.value) {
      continue;
    }
    if (code != CUDA_SUCCESS) return fail(code, "cuKernelSetAttribute");
    code = driver_.cuFuncSetAttribute(function, info->id, attribute.value);
    if (code != CUDA_SUCCESS) return fail(code, "cuFuncSetAttribute");
  }
  return success();
}

}  // namespace foundry::graph
