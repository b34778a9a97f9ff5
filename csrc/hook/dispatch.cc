// From an interposed symbol and a route to its handler: one function for each, made from the table.
#include "csrc/hook/cuda_api.h"

#include <type_traits>

#include "csrc/hook/exports.h"
#include "csrc/hook/handlers.h"
#include "csrc/hook/lookup.h"
#include "csrc/hook/note.h"
#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"

namespace foundry::hook {
namespace {

// Null: passed through, and journaled as a change of state.
template <Entry entry>
inline constexpr std::nullptr_t kHandler = nullptr;

#define FOUNDRY_HANDLE(symbol, function) \
  template <>                            \
  inline constexpr auto kHandler<Entry::symbol> = &function;

FOUNDRY_HANDLE(cuGetProcAddress, get_proc_address)
FOUNDRY_HANDLE(cuGetProcAddress_v2, get_proc_address_v2)
FOUNDRY_HANDLE(cuModuleLoad, module_load)
FOUNDRY_HANDLE(cuModuleLoadData, module_load_data)
FOUNDRY_HANDLE(cuModuleLoadDataEx, module_load_data_ex)
FOUNDRY_HANDLE(cuModuleLoadFatBinary, module_load_data)
FOUNDRY_HANDLE(cuModuleUnload, module_unload)
FOUNDRY_HANDLE(cuLibraryLoadData, library_load_data)
FOUNDRY_HANDLE(cuLibraryLoadFromFile, library_load_file)
FOUNDRY_HANDLE(cuLibraryUnload, library_unload)
FOUNDRY_HANDLE(cuMemAlloc_v2, mem_alloc)
FOUNDRY_HANDLE(cuMemAllocPitch_v2, mem_alloc_pitch)
FOUNDRY_HANDLE(cuMemAllocManaged, mem_alloc_managed)
FOUNDRY_HANDLE(cuMemFree_v2, mem_free)
FOUNDRY_HANDLE(cuMemAllocAsync, mem_alloc_async)
FOUNDRY_HANDLE(cuMemAllocAsync_ptsz, mem_alloc_async)
FOUNDRY_HANDLE(cuMemAllocFromPoolAsync, mem_alloc_from_pool)
FOUNDRY_HANDLE(cuMemAllocFromPoolAsync_ptsz, mem_alloc_from_pool)
FOUNDRY_HANDLE(cuMemFreeAsync, mem_free_async)
FOUNDRY_HANDLE(cuMemFreeAsync_ptsz, mem_free_async)
FOUNDRY_HANDLE(cuMemPoolCreate, mem_pool_create)
FOUNDRY_HANDLE(cuMemPoolDestroy, mem_pool_destroy)
FOUNDRY_HANDLE(cuMemPoolImportFromShareableHandle, mem_pool_import)
FOUNDRY_HANDLE(cuMemAllocHost, mem_alloc_host_v1)
FOUNDRY_HANDLE(cuMemAllocHost_v2, mem_alloc_host)
FOUNDRY_HANDLE(cuMemHostAlloc, mem_host_alloc)
FOUNDRY_HANDLE(cuMemHostRegister, mem_host_register)
FOUNDRY_HANDLE(cuMemHostRegister_v2, mem_host_register)
FOUNDRY_HANDLE(cuMemHostUnregister, mem_host_release)
FOUNDRY_HANDLE(cuMemFreeHost, mem_host_release)
FOUNDRY_HANDLE(cuMemAddressReserve, mem_address_reserve)
FOUNDRY_HANDLE(cuMemAddressFree, mem_address_free)
FOUNDRY_HANDLE(cuMemCreate, mem_create)
FOUNDRY_HANDLE(cuMemRelease, mem_release)
FOUNDRY_HANDLE(cuMemMap, mem_map)
FOUNDRY_HANDLE(cuMemUnmap, mem_unmap)
FOUNDRY_HANDLE(cuMemGetInfo_v2, mem_get_info)
FOUNDRY_HANDLE(cuMemGetAddressRange_v2, mem_get_address_range)
FOUNDRY_HANDLE(cuPointerGetAttribute, pointer_get_attribute)
FOUNDRY_HANDLE(cuPointerGetAttributes, pointer_get_attributes)
FOUNDRY_HANDLE(cuIpcGetMemHandle, ipc_get_mem_handle)
FOUNDRY_HANDLE(cuStreamBeginCapture, begin_capture_v1)
FOUNDRY_HANDLE(cuStreamBeginCapture_ptsz, begin_capture_v1)
FOUNDRY_HANDLE(cuStreamBeginCapture_v2, begin_capture)
FOUNDRY_HANDLE(cuStreamBeginCapture_v2_ptsz, begin_capture)
FOUNDRY_HANDLE(cuStreamBeginCaptureToGraph, begin_capture_to_graph)
FOUNDRY_HANDLE(cuStreamBeginCaptureToGraph_ptsz, begin_capture_to_graph)
FOUNDRY_HANDLE(cuStreamEndCapture, end_capture)
FOUNDRY_HANDLE(cuStreamEndCapture_ptsz, end_capture)
FOUNDRY_HANDLE(cuStreamDestroy, stream_destroy)
FOUNDRY_HANDLE(cuStreamDestroy_v2, stream_destroy)
FOUNDRY_HANDLE(cuCtxDestroy, ctx_destroy)
FOUNDRY_HANDLE(cuCtxDestroy_v2, ctx_destroy)
FOUNDRY_HANDLE(cuDevicePrimaryCtxRelease, primary_ctx_end)
FOUNDRY_HANDLE(cuDevicePrimaryCtxRelease_v2, primary_ctx_end)
FOUNDRY_HANDLE(cuDevicePrimaryCtxReset, primary_ctx_end)
FOUNDRY_HANDLE(cuDevicePrimaryCtxReset_v2, primary_ctx_end)
FOUNDRY_HANDLE(cuCtxEnablePeerAccess, ctx_enable_peer_access)
FOUNDRY_HANDLE(cuModuleGetGlobal_v2, module_variable)
FOUNDRY_HANDLE(cuLibraryGetGlobal, library_variable)
FOUNDRY_HANDLE(cuLibraryGetManaged, library_variable)
#undef FOUNDRY_HANDLE

// First and second argument as words, for the journal: the object that changes, and often the value.
template <class Value>
uint64_t word(Value value) {
  if constexpr (std::is_pointer_v<Value>) {
    return reinterpret_cast<uint64_t>(value);
  } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
    return static_cast<uint64_t>(value);
  } else {
    return 0;
  }
}
template <class First, class... Rest>
uint64_t first_word(First first, Rest...) {
  return word(first);
}
template <class First, class Second, class... Rest>
uint64_t second_word(First, Second second, Rest...) {
  return word(second);
}
template <class First>
uint64_t second_word(First) {
  return 0;
}

template <Route route, Entry entry, class Function>
struct Interposed;

template <Route route, Entry entry, class... Arguments>
struct Interposed<route, entry, CUresult (*)(Arguments...)> {
  using Function = CUresult (*)(Arguments...);
  static constexpr const Row& kRow = kRows[static_cast<size_t>(entry)];
  static constexpr bool kDefault = std::is_same_v<decltype(kHandler<entry>), const std::nullptr_t>;
  static_assert(kDefault == (kRow.group == Group::state), "every group but `state` has a handler");

  static CUresult call(Arguments... arguments) {
    const auto function = reinterpret_cast<Function>(next(route, entry));
    if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
    if (!hooking() || forked()) return function(arguments...);
    if constexpr (kRow.group != Group::lookup) note_use();
    if constexpr (kDefault) {
      const CUresult result = function(arguments...);
      if (result == CUDA_SUCCESS) note_state(kRow, first_word(arguments...), second_word(arguments...));
      return result;
    } else {
      return kHandler<entry>(kRow, function, arguments...);
    }
  }
};

#define FOUNDRY_ADDRESSES(route) {FOUNDRY_INTERPOSED(FOUNDRY_ADDRESS_##route)}
#define FOUNDRY_ADDRESS_dlsym(symbol, base, type, group, since, stream) \
  reinterpret_cast<const void*>(&Interposed<Route::dlsym, Entry::symbol, type>::call),
#define FOUNDRY_ADDRESS_get_proc_address(symbol, base, type, group, since, stream) \
  reinterpret_cast<const void*>(&Interposed<Route::get_proc_address, Entry::symbol, type>::call),

const void* const kByDlsym[kEntries] = FOUNDRY_ADDRESSES(dlsym);
const void* const kByGetProcAddress[kEntries] = FOUNDRY_ADDRESSES(get_proc_address);

}  // namespace

const void* handler(Route route, Entry entry) noexcept {
  return (route == Route::dlsym ? kByDlsym : kByGetProcAddress)[static_cast<size_t>(entry)];
}

}  // namespace foundry::hook

// What the exported symbols jump through (exports.cc).
extern "C" {
#define FOUNDRY_TARGET(symbol, base, type, group, since, stream)                  \
  extern const void* const foundry_hook_target_##symbol;                          \
  const void* const foundry_hook_target_##symbol = reinterpret_cast<const void*>( \
      &foundry::hook::Interposed<foundry::hook::Route::exported, foundry::hook::Entry::symbol, type>::call);
FOUNDRY_INTERPOSED(FOUNDRY_TARGET)
#undef FOUNDRY_TARGET
}
