// Stream-ordered allocations. The driver gives them addresses of its choosing, so on SAVE they are served like plain
// ones (memory that is usable at once is in order on every stream), and while the stream captures from the zone of
// graph-private memory. What stays with a pool is journaled without a zone, for the audit to name.
#include "csrc/hook/handlers.h"

#include <mutex>
#include <unordered_map>

#include "csrc/driver/driver.h"
#include "csrc/hook/captures.h"
#include "csrc/hook/note.h"
#include "csrc/hook/placement.h"
#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"

namespace foundry::hook {
namespace {

// Pools the application made, and whether plain memory of a device can stand in for theirs: not for memory that another
// process, the host or another device shares.
struct Pools {
  std::mutex mutex;
  struct Pool {
    bool plain;
    int device;
  };
  std::unordered_map<CUmemoryPool, Pool> made;
};

Pools& pools() {
  static Pools& instance = *new Pools;
  return instance;
}

void remember(CUmemoryPool pool, bool plain, int device) noexcept {
  contained("remembering a memory pool", [&] {
    const std::lock_guard lock(pools().mutex);
    pools().made[pool] = {plain, device};
  });
}

// Pools of the driver itself are not in the list and hold plain memory of the stream's device.
bool can_stand_in(CUmemoryPool pool) noexcept {
  return contained("looking up a memory pool", false, [&] {
    const driver::Driver* table = driver_table();
    CUdevice device = 0;
    if (table == nullptr || table->cuCtxGetDevice(&device) != CUDA_SUCCESS) return false;
    const std::lock_guard lock(pools().mutex);
    const auto found = pools().made.find(pool);
    return found == pools().made.end() || (found->second.plain && found->second.device == device);
  });
}

uint64_t stream_word(CUstream stream) { return reinterpret_cast<uint64_t>(stream); }

CUresult noted_alloc(const Row& row, CUresult result, const CUdeviceptr* out, size_t bytes, CUstream stream) {
  if (result == CUDA_SUCCESS && out != nullptr) note(FOUNDRY_EVENT_ALLOC, row, *out, bytes, stream_word(stream));
  return result;
}

bool in_graph(const Row& row, CUdeviceptr* out, size_t bytes, CUstream stream) {
  return capture_is_active(row, stream) && place_in_graph(row, out, bytes, stream_word(stream));
}

}  // namespace

CUresult mem_alloc_async(const Row& row, PFN_cuMemAllocAsync_v11020 next, CUdeviceptr* out, size_t bytes,
                         CUstream stream) {
  const auto allocate = [&] { return noted_alloc(row, next(out, bytes, stream), out, bytes, stream); };
  if (!may_place()) return allocate();
  if (stream_captures(row, stream)) return in_graph(row, out, bytes, stream) ? CUDA_SUCCESS : allocate();
  return place_or(row, out, bytes, stream_word(stream), allocate);
}

CUresult mem_alloc_from_pool(const Row& row, PFN_cuMemAllocFromPoolAsync_v11020 next, CUdeviceptr* out, size_t bytes,
                             CUmemoryPool pool, CUstream stream) {
  const auto allocate = [&] { return noted_alloc(row, next(out, bytes, pool, stream), out, bytes, stream); };
  if (!may_place() || !can_stand_in(pool)) return allocate();
  if (stream_captures(row, stream)) return in_graph(row, out, bytes, stream) ? CUDA_SUCCESS : allocate();
  return place_or(row, out, bytes, stream_word(stream), allocate);
}

CUresult mem_free_async(const Row& row, PFN_cuMemFreeAsync_v11020 next, CUdeviceptr address, CUstream stream) {
  if (const auto freed = free_in_zone(row, address, stream_word(stream))) return *freed;
  const CUresult result = next(address, stream);
  if (result == CUDA_SUCCESS && address != 0) note(FOUNDRY_EVENT_FREE, row, address, 0, stream_word(stream));
  return result;
}

CUresult mem_pool_create(const Row& row, PFN_cuMemPoolCreate_v11020 next, CUmemoryPool* pool,
                         const CUmemPoolProps* properties) {
  const CUresult result = next(pool, properties);
  if (result != CUDA_SUCCESS || pool == nullptr || properties == nullptr) return result;
  const bool plain = properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                     properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
                     properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  remember(*pool, plain, properties->location.id);
  note_state(row, reinterpret_cast<uint64_t>(*pool), plain ? 1 : 0);
  return result;
}

CUresult mem_pool_destroy(const Row& row, PFN_cuMemPoolDestroy_v11020 next, CUmemoryPool pool) {
  const CUresult result = next(pool);
  if (result == CUDA_SUCCESS) {
    contained("forgetting a memory pool", [&] {
      const std::lock_guard lock(pools().mutex);
      pools().made.erase(pool);
    });
    note_state(row, reinterpret_cast<uint64_t>(pool), 0);
  }
  return result;
}

CUresult mem_pool_import(const Row& row, PFN_cuMemPoolImportFromShareableHandle_v11020 next, CUmemoryPool* pool,
                         void* handle, CUmemAllocationHandleType type, unsigned long long flags) {
  const CUresult result = next(pool, handle, type, flags);
  if (result == CUDA_SUCCESS && pool != nullptr) {
    remember(*pool, false, -1);
    note_state(row, reinterpret_cast<uint64_t>(*pool), 0);
  }
  return result;
}

}  // namespace foundry::hook
