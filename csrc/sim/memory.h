// The address space: every range that a device pointer may point into.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "csrc/sim/context.h"

namespace foundry::sim {

enum class MemoryKind { kDevice, kManaged, kPooled, kMapping, kHost, kRegistered, kGlobal, kGraph };

// What cuMemCreate makes. The bytes live in a memory file, so that two mappings of one handle are the same bytes.
struct Physical {
  CUmemGenericAllocationHandle handle = 0;
  Device* device = nullptr;
  CUmemAllocationProp prop = {};
  std::size_t bytes = 0;
  int file = -1;
  std::size_t offset = 0;  // in the file
  bool own_file = false;
  unsigned references = 1;  // of handles; mappings hold the object itself
  ~Physical();
};

struct Range {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  Device* device = nullptr;     // null for host memory
  CUcontext context = nullptr;  // that it ends with; null for mappings
  unsigned long long id = 0;
  unsigned flags = 0;  // of host memory
  bool readable = true, writable = true;
  std::map<int, CUmemAccess_flags> access;  // of a mapping, by device
  bool freed = false;                       // a free is queued in a stream
  bool sync_memops = false;
  std::size_t charged = 0;
  CUmemoryPool pool = nullptr;
  std::shared_ptr<Physical> physical;

  bool host() const { return kind == MemoryKind::kHost || kind == MemoryKind::kRegistered; }
};

// By base address.
std::map<std::uintptr_t, Range>& ranges();
Range* find_range(std::uintptr_t address);
Range& add_range(Range range);

// Are all bytes in live ranges (several adjacent ones will do) that permit the access? For device pointers.
enum class Access { kRead, kWrite };
CUresult check_device_range(std::uintptr_t address, std::size_t bytes, Access access);

// Address space of the driver's choice, never handed out twice: PROT_NONE, with an unmapped page behind it.
std::uintptr_t reserve_addresses(std::size_t bytes);
bool back_addresses(std::uintptr_t base, std::size_t bytes);    // makes fresh zeroed pages there
void unback_addresses(std::uintptr_t base, std::size_t bytes);  // faults from now on

// Device-side memory with backing; `kind` is kDevice, kManaged or kPooled.
CUresult allocate(Context& context, MemoryKind kind, std::size_t bytes, Range** out);
// Ends a range of the above kinds: its addresses fault, the device has its bytes back.
void release_range(std::uintptr_t base);
CUresult wait_and_release(std::uintptr_t base);  // after all work of the device, as cuMemFree does

// Copies that report unreadable and unwritable memory instead of faulting.
bool copy_bytes(void* to, const void* from, std::size_t bytes);

}  // namespace foundry::sim
