#include "csrc/graph/functions.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/graph/node_attributes.h"

namespace foundry::graph {
namespace {

// No kernel has more: the driver takes at most 32764 bytes of parameters.
constexpr size_t kMostParams = 32764;

int initial_value(const FunctionAttributeInfo& row, int static_shared) {
  return row.initial == kDefaultDynamicShared && row.id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
             ? std::max(0, kSharedWithoutOptIn - static_shared)
             : row.initial;
}

// What a driver answers for an attribute it does not know or this device does not have.
bool means_absent(CUresult code) { return code == CUDA_ERROR_INVALID_VALUE || code == CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace

void FunctionTable::refresh() {
  const uint64_t now = images_.refresh();
  if (now != generation_) by_handle_.clear();
  generation_ = now;
}

KernelHandle FunctionTable::told_apart(CUfunction function, CUkernel kernel) const {
  if (static_cast<void*>(function) == static_cast<void*>(kernel)) return {nullptr, kernel};
  if (kernel != nullptr || function == nullptr) return {function, kernel};
  CUmodule module = nullptr;
  if (driver_.cuFuncGetModule(&module, function) == CUDA_SUCCESS) return {function, nullptr};
  const auto disguised = reinterpret_cast<CUkernel>(function);
  const char* name = nullptr;
  if (driver_.cuKernelGetName(&name, disguised) == CUDA_SUCCESS) return {nullptr, disguised};
  return {function, nullptr};
}

Result<std::string> FunctionTable::name_of(const KernelHandle& handle) const {
  const char* name = nullptr;
  if (handle.kernel != nullptr) {
    FOUNDRY_CU(driver_, cuKernelGetName, &name, handle.kernel);
  } else {
    FOUNDRY_CU(driver_, cuFuncGetName, &name, handle.function);
  }
  if (name == nullptr || *name == '\0') {
    return Error{ErrorKind::unsupported, 0, "the driver knows no name for its kernel, so LOAD could not find it again"};
  }
  return std::string(name);
}

std::string FunctionTable::readable_name(CUfunction function, CUkernel kernel) const {
  const Result<std::string> name = name_of(told_apart(function, kernel));
  return name.ok() ? demangle(name.value()) : "without a name";
}

std::string FunctionTable::readable_name(uint32_t index) const { return demangle(states_[index].name); }

Result<FunctionTable::Known> FunctionTable::find(CUfunction function, CUkernel kernel) {
  const void* key = kernel != nullptr ? static_cast<const void*>(kernel) : static_cast<const void*>(function);
  if (const auto known = by_handle_.find(key); known != by_handle_.end()) return known->second;
  if (key == nullptr) return Error{ErrorKind::driver, 0, "the driver returned no function for it"};

  const KernelHandle handle = told_apart(function, kernel);
  FOUNDRY_ASSIGN(const std::string name, name_of(handle));
  FOUNDRY_ASSIGN(const uint64_t image_id, images_.resolve(handle, name));
  const uint32_t image = image_index(image_id);
  FOUNDRY_ASSIGN(const Known known, add(handle, image, name));
  by_handle_.emplace(key, known);
  return known;
}

uint32_t FunctionTable::image_index(uint64_t id) {
  const auto [entry, is_new] = image_by_id_.emplace(id, static_cast<uint32_t>(image_ids_.size()));
  if (is_new) {
    image_ids_.push_back(id);
    tables_.images.push_back({});
  }
  return entry->second;
}

Result<FunctionTable::Known> FunctionTable::add(const KernelHandle& handle, uint32_t image, const std::string& name) {
  State state;
  state.name = name;
  FOUNDRY_TRY(read_attributes(handle, state));

  if (const auto found = by_name_.find({image, name}); found != by_name_.end()) {
    // Another handle of a known function: its opt-in may be larger.
    State& first = states_[found->second];
    for (size_t row = 0; row < state.attributes.size(); ++row) {
      if (function_attributes()[row].rule != FunctionAttributeRule::at_least) continue;
      if (state.attributes[row] > first.attributes[row]) {
        first.attributes[row] = state.attributes[row];
        attributes_changed_ = true;
      }
    }
    return Known{found->second, first.buffer_bytes, first.clustered};
  }

  archive::FunctionRecord record{};
  record.image = image;
  record.first_param = static_cast<uint32_t>(tables_.params.size());
  for (size_t index = 0;; ++index) {
    size_t offset = 0;
    size_t bytes = 0;
    const CUresult code = handle.kernel != nullptr
                              ? driver_.cuKernelGetParamInfo(handle.kernel, index, &offset, &bytes)
                              : driver_.cuFuncGetParamInfo(handle.function, index, &offset, &bytes);
    if (code == CUDA_ERROR_INVALID_VALUE) break;  // the one answer that means "no such parameter"
    if (code != CUDA_SUCCESS) {
      return driver_.error(code, handle.kernel != nullptr ? "cuKernelGetParamInfo" : "cuFuncGetParamInfo")
          .within(format("parameter %zu of kernel %s", index, demangle(name).c_str()));
    }
    if (index >= kMostParams || offset > kMostParams || bytes > kMostParams) {
      return Error{
          ErrorKind::driver, 0,
          format("the driver reports parameter %zu of kernel %s at offset %zu with %zu bytes, which no kernel has",
                 index, demangle(name).c_str(), offset, bytes)};
    }
    tables_.params.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    state.buffer_bytes = std::max(state.buffer_bytes, static_cast<uint32_t>(offset + bytes));
  }
  record.param_count = static_cast<uint32_t>(tables_.params.size()) - record.first_param;

  const Known known{static_cast<uint32_t>(tables_.functions.size()), state.buffer_bytes, state.clustered};
  tables_.functions.push_back(record);
  states_.push_back(std::move(state));
  by_name_.emplace(std::pair(image, name), known.index);
  attributes_changed_ = true;
  return known;
}

Status FunctionTable::read_attributes(const KernelHandle& handle, State& state) const {
  CUdevice device = 0;
  FOUNDRY_CU(driver_, cuCtxGetDevice, &device);
  // Opt-ins are made on the kernel (cudart) or on its function in this context; both count.
  CUfunction function = handle.function;
  if (function == nullptr) FOUNDRY_CU(driver_, cuKernelGetFunction, &function, handle.kernel);

  const auto read = [&](CUfunction_attribute id, bool of_kernel, int initial) -> Result<int> {
    int value = initial;
    const CUresult code = of_kernel ? driver_.cuKernelGetAttribute(&value, id, handle.kernel, device)
                                    : driver_.cuFuncGetAttribute(&value, id, function);
    if (code == CUDA_SUCCESS) return value;
    if (means_absent(code)) return initial;
    return driver_.error(code, of_kernel ? "cuKernelGetAttribute" : "cuFuncGetAttribute")
        .within(format("attribute %d of kernel %s", static_cast<int>(id), demangle(state.name).c_str()));
  };

  FOUNDRY_ASSIGN(state.static_shared, read(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, false, 0));
  for (const FunctionAttributeInfo& row : function_attributes()) {
    const int initial = initial_value(row, state.static_shared);
    FOUNDRY_ASSIGN(int value, read(row.id, false, initial));
    if (handle.kernel != nullptr) {
      FOUNDRY_ASSIGN(const int of_kernel, read(row.id, true, initial));
      if (row.rule == FunctionAttributeRule::at_least) {
        value = std::max(value, of_kernel);
      } else if (value == initial) {
        value = of_kernel;
      }
    }
    if (row.id == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) state.clustered = value > 0;
    state.attributes.push_back(value);
  }
  return success();
}

void FunctionTable::commit(size_t first_kernel) {
  for (size_t i = first_kernel; i < tables_.kernels.size(); ++i) {
    const archive::KernelRecord& kernel = tables_.kernels[i];
    State& state = states_[kernel.function];
    for (size_t row = 0; row < state.attributes.size(); ++row) {
      if (function_attributes()[row].rule != FunctionAttributeRule::at_least) continue;
      const int needed = static_cast<int>(kernel.dynamic_shared_bytes);
      if (needed > state.attributes[row]) {
        state.attributes[row] = needed;
        attributes_changed_ = true;
      }
    }
  }
  for (; committed_ < states_.size(); ++committed_) {
    tables_.functions[committed_].name = tables_.graphs_strings.add(states_[committed_].name);
  }
  if (attributes_changed_) write_attributes();
  attributes_changed_ = false;
}

// The maximum of a function can grow with every graph, so the section is written anew: a few hundred small records.
void FunctionTable::write_attributes() {
  tables_.function_attributes.clear();
  for (size_t i = 0; i < states_.size(); ++i) {
    archive::FunctionRecord& record = tables_.functions[i];
    record.first_attribute = static_cast<uint32_t>(tables_.function_attributes.size());
    for (size_t row = 0; row < states_[i].attributes.size(); ++row) {
      const FunctionAttributeInfo& info = function_attributes()[row];
      const int value = states_[i].attributes[row];
      const int initial = initial_value(info, states_[i].static_shared);
      const bool needed = info.rule == FunctionAttributeRule::at_least ? value > initial : value != initial;
      if (needed) tables_.function_attributes.push_back({static_cast<int32_t>(info.id), value});
    }
    record.attribute_count = static_cast<uint32_t>(tables_.function_attributes.size()) - record.first_attribute;
  }
}

void FunctionTable::roll_back() {
  const auto functions = static_cast<uint32_t>(tables_.functions.size());
  const auto images = static_cast<uint32_t>(tables_.images.size());
  states_.resize(functions);
  image_ids_.resize(images);
  boost::unordered::erase_if(image_by_id_, [&](const auto& entry) { return entry.second >= images; });
  boost::unordered::erase_if(by_handle_, [&](const auto& entry) { return entry.second.index >= functions; });
  boost::unordered::erase_if(by_name_, [&](const auto& entry) { return entry.second >= functions; });
}

}  // namespace foundry::graph
