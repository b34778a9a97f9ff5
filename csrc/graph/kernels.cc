#include "csrc/graph/kernels.h"

#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "csrc/base/trace.h"
#include "csrc/graph/node_attributes.h"

namespace foundry::graph {

Kernels::Kernels(const driver::Driver& driver, const GraphView& view, Libraries& libraries, CUdevice device)
    : driver_(driver),
      view_(view),
      libraries_(libraries),
      device_(device),
      slots_(std::make_unique<Slot[]>(view.functions.size())),
      functions_of_(view.images.size()) {
  for (uint32_t i = 0; i < view.functions.size(); ++i) functions_of_[view.functions[i].image].push_back(i);
}

std::string Kernels::readable_name(uint32_t index) const {
  return demangle(std::string(view_.text(view_.functions[index].name)));
}

Result<CUfunction> Kernels::find_first(uint32_t index, LookupTime& time) {
  Slot& slot = slots_[index];
  Stopwatch watch;
  bool looked = false;
  std::call_once(slot.once, [&] {
    looked = true;
    slot.function = look_up(index, time);
    if (slot.function.ok()) slot.ready.store(slot.function.value(), std::memory_order_release);
  });
  if (!looked) time.waiting_ms += watch.lap();
  return slot.function;
}

void Kernels::look_up_all(uint32_t image, LookupTime& time) {
  trace::Span span("look up kernels");
  span.count(functions_of_[image].size());
  for (const uint32_t function : functions_of_[image]) {
    if (!find(function, time).ok()) return;
  }
}

Result<CUfunction> Kernels::look_up(uint32_t index, LookupTime& time) const {
  const archive::FunctionRecord& record = view_.functions[index];
  Stopwatch watch;
  FOUNDRY_ASSIGN(const CUlibrary library, libraries_.wait(record.image));
  time.waiting_ms += watch.lap();
  const auto prepare = [&]() -> Result<CUfunction> {
    CUkernel kernel = nullptr;
    const std::string name(view_.text(record.name));
    FOUNDRY_CU(driver_, cuLibraryGetKernel, &kernel, library, name.c_str());
    FOUNDRY_TRY(check_params(kernel, record));
    // Loads it into the current context. Where a CUkernel stands in a node, the driver does so when the first such node
    // is added, on the thread that everything waits for, and looks it up again for every other node.
    CUfunction function = nullptr;
    FOUNDRY_CU(driver_, cuKernelGetFunction, &function, kernel);
    FOUNDRY_TRY(set_attributes(kernel, function, record));
    return function;
  };
  Result<CUfunction> function = prepare();
  time.kernels_ms += watch.lap();
  ++time.functions;
  return function;
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

Status Kernels::set_attributes(CUkernel kernel, CUfunction function, const archive::FunctionRecord& record) const {
  // On both: opt-ins of the kernel do not reach a function that exists.
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
