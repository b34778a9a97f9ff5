// GraphReader: memcpy nodes.
#include <algorithm>

#include "csrc/archive/extents.h"
#include "csrc/base/text.h"
#include "csrc/graph/graph_reader.h"

namespace foundry::graph {

using archive::Extent;
using archive::MemcpyRecord;

Result<uint32_t> GraphReader::read_memcpy(CUgraphNode node) {
  CUDA_MEMCPY3D params{};
  FOUNDRY_CU(driver_, cuGraphMemcpyNodeGetParams, node, &params);
  MemcpyRecord record{};
  FOUNDRY_ASSIGN(record.source, memcpy_end(params.srcMemoryType, params.srcHost, params.srcDevice, params.srcLOD,
                                           "reads", archive::kSourceIsHost, record.flags));
  FOUNDRY_ASSIGN(record.destination, memcpy_end(params.dstMemoryType, params.dstHost, params.dstDevice, params.dstLOD,
                                                "writes", archive::kDestinationIsHost, record.flags));
  record.source_x = params.srcXInBytes;
  record.source_y = params.srcY;
  record.source_z = params.srcZ;
  record.source_pitch = params.srcPitch;
  record.source_height = params.srcHeight;
  record.destination_x = params.dstXInBytes;
  record.destination_y = params.dstY;
  record.destination_z = params.dstZ;
  record.destination_pitch = params.dstPitch;
  record.destination_height = params.dstHeight;
  record.width_bytes = params.WidthInBytes;
  record.height = params.Height;
  record.depth = params.Depth;
  FOUNDRY_TRY(check_host_extents(record));
  tables_.memcpys.push_back(record);
  return static_cast<uint32_t>(tables_.memcpys.size() - 1);
}

Result<uint64_t> GraphReader::memcpy_end(CUmemorytype type, const void* host, CUdeviceptr device, size_t lod,
                                         const char* verb, uint32_t host_flag, uint32_t& flags) const {
  if (lod != 0 || type == CU_MEMORYTYPE_ARRAY) {
    return Error{ErrorKind::unsupported, 0,
                 format("it %s a CUDA array, which cannot be restored; use plain device memory", verb)};
  }
  if (type == CU_MEMORYTYPE_HOST) {
    flags |= host_flag;
    return reinterpret_cast<uint64_t>(host);
  }
  if (type == CU_MEMORYTYPE_UNIFIED) {
    // Only the driver knows on which side a unified address lies; one it does not know is pageable host memory.
    unsigned int kind = 0;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void* into = &kind;
    FOUNDRY_CU(driver_, cuPointerGetAttributes, 1, &attribute, &into, device);
    if (kind != CU_MEMORYTYPE_DEVICE) flags |= host_flag;
    return device;
  }
  if (type == CU_MEMORYTYPE_DEVICE) return device;
  return Error{ErrorKind::unsupported, 0, format("it %s memory of the unknown type %d", verb, static_cast<int>(type))};
}

Status GraphReader::check_host_extents(const MemcpyRecord& record) const {
  const auto check = [&](uint32_t flag, uint64_t base, const Extent& extent, const char* verb) -> Status {
    if ((record.flags & flag) == 0) return success();
    // The base too: LOAD moves it with the range.
    const bool registered = std::any_of(host_ranges_.begin(), host_ranges_.end(), [&](const NamedRange& range) {
      return base - range.address < range.bytes && extent.within(range.address, range.bytes);
    });
    if (registered) return success();
    return Error{ErrorKind::unsupported, 0,
                 format("it %s %s of host memory at %s, which does not exist on LOAD; copy outside the capture, or "
                        "register the host range (register_host)",
                        verb, bytes_text(extent.bytes).c_str(), hex(extent.address).c_str())};
  };
  FOUNDRY_TRY(check(archive::kSourceIsHost, record.source, source_extent(record), "reads"));
  return check(archive::kDestinationIsHost, record.destination, destination_extent(record), "writes");
}

}  // namespace foundry::graph
