// GraphReader: kernel nodes.
#include <cstring>

#include "csrc/base/text.h"
#include "csrc/graph/graph_reader.h"

namespace foundry::graph {

using archive::ArgumentForm;
using archive::KernelRecord;

Result<uint32_t> GraphReader::read_kernel(CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS params{};
  FOUNDRY_CU(driver_, cuGraphKernelNodeGetParams, node, &params);
  FOUNDRY_ASSIGN(const FunctionTable::Known function, functions_.find(params.func, params.kern));

  KernelRecord record{};
  record.function = function.index;
  record.grid[0] = params.gridDimX;
  record.grid[1] = params.gridDimY;
  record.grid[2] = params.gridDimZ;
  record.block[0] = params.blockDimX;
  record.block[1] = params.blockDimY;
  record.block[2] = params.blockDimZ;
  record.dynamic_shared_bytes = params.sharedMemBytes;
  FOUNDRY_TRY(read_arguments(params, function, record));
  FOUNDRY_TRY(attributes_.read(node, params, function.clustered, record));
  tables_.kernels.push_back(record);
  return static_cast<uint32_t>(tables_.kernels.size() - 1);
}

Status GraphReader::read_arguments(const CUDA_KERNEL_NODE_PARAMS& params, FunctionTable::Known function,
                                   KernelRecord& record) {
  auto& bytes = tables_.arguments;
  bytes.resize((bytes.size() + 7) / 8 * 8);  // words of the buffer stay words of the section
  record.arguments = bytes.size();

  if (params.extra != nullptr) {
    record.argument_form = static_cast<uint32_t>(ArgumentForm::extra);
    const void* buffer = nullptr;
    size_t size = 0;
    for (void** item = params.extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
      if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = item[1];
      } else if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        size = *static_cast<const size_t*>(item[1]);
      } else {
        return Error{ErrorKind::unsupported, 0, "its `extra` arguments have a key of a newer CUDA version"};
      }
    }
    if (size < function.buffer_bytes || (size > 0 && buffer == nullptr)) {
      return Error{ErrorKind::driver, 0,
                   format("its argument buffer has %zu bytes where the kernel takes %u", buffer == nullptr ? 0 : size,
                          function.buffer_bytes)};
    }
    record.argument_bytes = static_cast<uint32_t>(size);
    const auto* first = static_cast<const std::byte*>(buffer);
    if (size > 0) bytes.insert(bytes.end(), first, first + size);
    return success();
  }

  record.argument_form = static_cast<uint32_t>(ArgumentForm::params);
  record.argument_bytes = function.buffer_bytes;
  bytes.resize(bytes.size() + function.buffer_bytes);
  const archive::FunctionRecord& layout = tables_.functions[function.index];
  if (layout.param_count > 0 && params.kernelParams == nullptr) {
    return Error{ErrorKind::driver, 0, format("the driver returned none of its %u arguments", layout.param_count)};
  }
  for (uint32_t i = 0; i < layout.param_count; ++i) {
    const archive::ParamRecord& param = tables_.params[layout.first_param + i];
    std::memcpy(bytes.data() + record.arguments + param.offset, params.kernelParams[i], param.bytes);
  }
  return success();
}

}  // namespace foundry::graph
