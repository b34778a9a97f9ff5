// Virtual memory management: reservations at true addresses, physical handles, mappings and access.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "csrc/sim/capture.h"
#include "csrc/sim/memory.h"
#include "csrc/sim/reservation.h"

namespace foundry::sim {
namespace {

std::size_t default_granularity() {
  Context* context = current_context_or_null();
  return context != nullptr ? context->device->granularity : device_at(0)->granularity;
}

Reservation* reservation_around(std::uintptr_t address, std::size_t bytes) {
  auto it = reservations().upper_bound(address);
  if (it == reservations().begin()) return nullptr;
  --it;
  std::size_t offset = address - it->first;
  return offset < it->second.bytes && bytes <= it->second.bytes - offset ? &it->second : nullptr;
}

// Every device has one sparse memory file; handles are pieces of it that are never used twice.
CUresult device_file(int* file, std::size_t bytes, std::size_t* offset) {
  static int shared_file = -1;
  static std::size_t end = 0;
  if (shared_file < 0) shared_file = memfd_create("foundry-sim", MFD_CLOEXEC);
  if (shared_file < 0 || ftruncate(shared_file, static_cast<off_t>(end + bytes)) != 0) {
    return fail(CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory file: %s", std::strerror(errno));
  }
  *file = shared_file;
  *offset = end;
  end += bytes;
  return CUDA_SUCCESS;
}

CUresult check_prop(const CUmemAllocationProp* prop, Device** device) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return fail(CUDA_ERROR_INVALID_VALUE, "the allocation type must be CU_MEM_ALLOCATION_TYPE_PINNED");
  }
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return fail(CUDA_ERROR_NOT_SUPPORTED, "only memory of a device is simulated, not location type %d",
                static_cast<int>(prop->location.type));
  }
  *device = device_at(prop->location.id);
  if (*device == nullptr) return fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", prop->location.id);
  return CUDA_SUCCESS;
}

bool all_mapped_whole(std::uintptr_t at, std::size_t bytes, std::vector<Range*>* out) {
  std::uintptr_t end = at + bytes;
  while (at < end) {
    auto it = ranges().find(at);
    if (it == ranges().end() || it->second.kind != MemoryKind::kMapping || it->second.bytes > end - at) return false;
    out->push_back(&it->second);
    at += it->second.bytes;
  }
  return true;
}

CUresult find_physical(CUmemGenericAllocationHandle handle, std::shared_ptr<Physical>* physical) {
  *physical = physicals().find(handle);
  if (*physical != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_VALUE, "allocation handle 0x%llx was %s", static_cast<unsigned long long>(handle),
              physicals().why_not(handle));
}

}  // namespace

std::map<std::uintptr_t, Reservation>& reservations() {
  static auto* table = new std::map<std::uintptr_t, Reservation>;
  return *table;
}

HandleTable<Physical, CUmemGenericAllocationHandle, Kind::kPhysical>& physicals() {
  static auto* table = new HandleTable<Physical, CUmemGenericAllocationHandle, Kind::kPhysical>;
  return *table;
}

Physical::~Physical() {
  if (own_file) {
    close(file);
  } else if (file >= 0) {
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  }
  if (device != nullptr) refund(*device, bytes);
}

SIM_API(cuMemAddressReserve,
        (CUdeviceptr * out, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags),
        (out, bytes, alignment, hint, flags)) {
  std::size_t granularity = default_granularity();
  if (out == nullptr || flags != 0 || bytes == 0)
    return fail(CUDA_ERROR_INVALID_VALUE, "null result, 0 bytes or flags");
  if (bytes % granularity != 0 || (alignment & (alignment - 1)) != 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%zu bytes (granularity %zu) with alignment %zu", bytes, granularity,
                alignment);
  }
  if (alignment < granularity) alignment = granularity;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* at = MAP_FAILED;
  if (hint != 0 && hint % alignment == 0) {
    at = mmap(reinterpret_cast<void*>(hint), bytes, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
  }
  if (at == MAP_FAILED) {  // a hint is a hint
    std::size_t room = bytes + alignment;
    at = mmap(nullptr, room, PROT_NONE, kFlags, -1, 0);
    if (at == MAP_FAILED) return fail(CUDA_ERROR_OUT_OF_MEMORY, "no address space for %zu bytes", bytes);
    auto start = reinterpret_cast<std::uintptr_t>(at);
    std::uintptr_t aligned = (start + alignment - 1) / alignment * alignment;
    if (aligned > start) munmap(at, aligned - start);
    if (std::size_t rest = start + room - (aligned + bytes); rest > 0)
      munmap(reinterpret_cast<void*>(aligned + bytes), rest);
    at = reinterpret_cast<void*>(aligned);
  }
  *out = reinterpret_cast<CUdeviceptr>(at);
  reservations()[*out] = Reservation{bytes};
  return CUDA_SUCCESS;
}

SIM_API(cuMemAddressFree, (CUdeviceptr address, size_t bytes), (address, bytes)) {
  auto it = reservations().find(address);
  if (it == reservations().end() || it->second.bytes != bytes) {
    return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx with %zu bytes is no reservation", address, bytes);
  }
  auto next = ranges().lower_bound(address);
  if (next != ranges().end() && next->first < address + bytes) {
    return fail(CUDA_ERROR_INVALID_VALUE, "the reservation at 0x%llx still has a mapping at 0x%zx", address,
                next->first);
  }
  SIM_TRY(forbid_in_capture("cuMemAddressFree"));
  munmap(reinterpret_cast<void*>(address), bytes);
  reservations().erase(it);
  return CUDA_SUCCESS;
}

SIM_API(cuMemCreate,
        (CUmemGenericAllocationHandle * out, size_t bytes, const CUmemAllocationProp* prop, unsigned long long flags),
        (out, bytes, prop, flags)) {
  Device* device;
  SIM_TRY(check_prop(prop, &device));
  if (out == nullptr || flags != 0 || bytes == 0 || bytes % device->granularity != 0) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%zu bytes: not a multiple of the granularity %zu", bytes,
                device->granularity);
  }
  constexpr int kSupported = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if ((prop->requestedHandleTypes & ~kSupported) != 0) {
    return fail(CUDA_ERROR_NOT_SUPPORTED, "handle types 0x%x", static_cast<unsigned>(prop->requestedHandleTypes));
  }
  SIM_TRY(forbid_in_capture("cuMemCreate"));
  SIM_TRY(charge(*device, bytes, bytes));
  auto physical = std::make_shared<Physical>();
  physical->device = device;
  physical->bytes = bytes;
  physical->prop = *prop;
  if (prop->requestedHandleTypes != 0) {
    physical->file = memfd_create("foundry-sim-shared", MFD_CLOEXEC);
    physical->own_file = physical->file >= 0;
    if (physical->file < 0 || ftruncate(physical->file, static_cast<off_t>(bytes)) != 0) {
      return fail(CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory file: %s", std::strerror(errno));
    }
  } else {
    SIM_TRY(device_file(&physical->file, bytes, &physical->offset));
  }
  physical->handle = *out = physicals().add(physical);
  return CUDA_SUCCESS;
}

SIM_API(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle)) {
  std::shared_ptr<Physical> physical;
  SIM_TRY(find_physical(handle, &physical));
  if (--physical->references == 0) physicals().remove(handle);  // mappings keep the memory
  return CUDA_SUCCESS;
}

SIM_API(cuMemMap,
        (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags),
        (address, bytes, offset, handle, flags)) {
  std::shared_ptr<Physical> physical;
  SIM_TRY(find_physical(handle, &physical));
  std::size_t granularity = physical->device->granularity;
  if (flags != 0 || offset != 0 || bytes == 0 || bytes % granularity != 0 || address % granularity != 0 ||
      bytes > physical->bytes) {
    return fail(CUDA_ERROR_INVALID_VALUE,
                "map 0x%llx, %zu bytes, offset %zu: granularity %zu, the handle has %zu bytes", address, bytes, offset,
                granularity, physical->bytes);
  }
  if (reservation_around(address, bytes) == nullptr) {
    return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx with %zu bytes is not inside a reservation", address, bytes);
  }
  auto next = ranges().lower_bound(address);
  if (find_range(address) != nullptr || (next != ranges().end() && next->first < address + bytes)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "something is mapped already between 0x%llx and 0x%llx", address,
                address + bytes);
  }
  SIM_TRY(forbid_in_capture("cuMemMap"));
  void* at = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                  physical->file, static_cast<off_t>(physical->offset));
  if (at == MAP_FAILED) return fail(CUDA_ERROR_MAP_FAILED, "the host cannot map it: %s", std::strerror(errno));
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.kind = MemoryKind::kMapping;
  range.device = physical->device;
  range.readable = range.writable = false;
  range.physical = physical;
  add_range(std::move(range));
  return CUDA_SUCCESS;
}

SIM_API(cuMemUnmap, (CUdeviceptr address, size_t bytes), (address, bytes)) {
  std::vector<Range*> mapped;
  if (bytes == 0 || !all_mapped_whole(address, bytes, &mapped)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx with %zu bytes is not a run of whole mappings", address, bytes);
  }
  SIM_TRY(forbid_in_capture("cuMemUnmap"));
  mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
       0);
  for (Range* range : mapped) ranges().erase(range->base);
  return CUDA_SUCCESS;
}

SIM_API(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc* descriptions, size_t count),
        (address, bytes, descriptions, count)) {
  std::vector<Range*> mapped;
  if (descriptions == nullptr || count == 0 || bytes == 0 || !all_mapped_whole(address, bytes, &mapped)) {
    return fail(CUDA_ERROR_INVALID_VALUE, "0x%llx with %zu bytes is not a run of whole mappings", address, bytes);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& one = descriptions[i];
    if (one.location.type != CU_MEM_LOCATION_TYPE_DEVICE || device_at(one.location.id) == nullptr) {
      return fail(CUDA_ERROR_INVALID_DEVICE, "access for device %d", one.location.id);
    }
    if (one.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && one.flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        one.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return fail(CUDA_ERROR_INVALID_VALUE, "access flags %d", static_cast<int>(one.flags));
    }
  }
  SIM_TRY(forbid_in_capture("cuMemSetAccess"));
  for (Range* range : mapped) {
    for (std::size_t i = 0; i < count; ++i) range->access[descriptions[i].location.id] = descriptions[i].flags;
    // The host cannot tell devices apart: the pages permit what any device may do.
    range->readable = range->writable = false;
    for (const auto& [device, flags] : range->access) {
      range->readable |= flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
      range->writable |= flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    int protection = (range->readable ? PROT_READ : 0) | (range->writable ? PROT_WRITE : 0);
    if (mprotect(reinterpret_cast<void*>(range->base), range->bytes, protection) != 0) {
      return fail(CUDA_ERROR_OPERATING_SYSTEM, "mprotect: %s", std::strerror(errno));
    }
  }
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetAccess, (unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address),
        (flags, location, address)) {
  Range* range = find_range(address);
  if (flags == nullptr || location == nullptr || range == nullptr) {
    return fail(CUDA_ERROR_INVALID_VALUE, "null argument, or no memory at 0x%llx", address);
  }
  auto it = range->access.find(location->id);
  if (range->kind == MemoryKind::kMapping) {
    *flags = it == range->access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : it->second;
  } else {
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetAllocationGranularity,
        (size_t* out, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option), (out, prop, option)) {
  Device* device;
  SIM_TRY(check_prop(prop, &device));
  if (out == nullptr || option < CU_MEM_ALLOC_GRANULARITY_MINIMUM || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return fail(CUDA_ERROR_INVALID_VALUE, "option %d", static_cast<int>(option));
  }
  *out = device->granularity;
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle),
        (prop, handle)) {
  std::shared_ptr<Physical> physical;
  SIM_TRY(find_physical(handle, &physical));
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = physical->prop;
  return CUDA_SUCCESS;
}

SIM_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * out, void* address), (out, address)) {
  Range* range = find_range(reinterpret_cast<std::uintptr_t>(address));
  if (out == nullptr || range == nullptr || range->physical == nullptr) {
    return fail(CUDA_ERROR_INVALID_VALUE, "no mapping at %p", address);
  }
  std::shared_ptr<Physical>& physical = range->physical;
  if (physical->references++ == 0) physical->handle = physicals().add(physical);
  *out = physical->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuMemExportToShareableHandle,
        (void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags),
        (out, handle, type, flags)) {
  std::shared_ptr<Physical> physical;
  SIM_TRY(find_physical(handle, &physical));
  if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !physical->own_file) {
    return fail(CUDA_ERROR_INVALID_VALUE, "handle type %d was not asked for at cuMemCreate", static_cast<int>(type));
  }
  int file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return fail(CUDA_ERROR_OPERATING_SYSTEM, "dup: %s", std::strerror(errno));
  *static_cast<int*>(out) = file;
  return CUDA_SUCCESS;
}

SIM_API(cuMemImportFromShareableHandle,
        (CUmemGenericAllocationHandle * out, void* shared, CUmemAllocationHandleType type), (out, shared, type)) {
  if (out == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return fail(CUDA_ERROR_INVALID_VALUE, "handle type %d", static_cast<int>(type));
  }
  Context* context;
  SIM_TRY(current_context(&context));
  int file = fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(shared)), F_DUPFD_CLOEXEC, 0);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0 || status.st_size <= 0) {
    if (file >= 0) close(file);
    return fail(CUDA_ERROR_INVALID_VALUE, "the descriptor is no exported allocation");
  }
  auto physical = std::make_shared<Physical>();  // the exporter's memory: not charged here
  physical->bytes = static_cast<std::size_t>(status.st_size);
  physical->file = file;
  physical->own_file = true;
  physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  physical->prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, context->device->ordinal};
  SIM_TRY(charge(*context->device, physical->bytes, physical->bytes));
  physical->device = context->device;
  physical->handle = *out = physicals().add(physical);
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
