#include "csrc/hook/cuda_api.h"

#include "csrc/hook/lookup.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <optional>
#include <string>

#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"

namespace foundry::hook {
namespace {

std::optional<Entry> interposed(const char* symbol) {
  for (size_t i = 0; i < kEntries; ++i) {
    if (std::strcmp(kRows[i].symbol, symbol) == 0) return static_cast<Entry>(i);
  }
  return std::nullopt;
}

link_map* object_of(const void* address) {
  Dl_info info;
  void* map = nullptr;
  return dladdr1(address, &info, &map, RTLD_DL_LINKMAP) != 0 ? static_cast<link_map*>(map) : nullptr;
}

// The objects up to this library stand in the order of the global scope and are never unloaded.
struct Order {
  link_map* program = nullptr;
  link_map* ours = nullptr;

  bool before_us(const link_map* object) const {
    for (const link_map* at = program; at != nullptr && at != ours; at = at->l_next) {
      if (at == object) return true;
    }
    return false;
  }
};

const Order& order() {
  static const Order known = [] {
    Order fresh;
    fresh.ours = object_of(reinterpret_cast<const void*>(&interposed));
    fresh.program = fresh.ours;
    while (fresh.program != nullptr && fresh.program->l_prev != nullptr) fresh.program = fresh.program->l_prev;
    return fresh;
  }();
  return known;
}

// What a loaded object and its dependencies have by this name. A link_map becomes a handle by being opened: before, an
// object that was there at start has no list to search. The vdso has no path and is passed over.
void* found_in(const link_map* object, const char* symbol) {
  const bool program = object == order().program;
  if (!program && std::strchr(object->l_name, '/') == nullptr) return nullptr;
  void* const handle = dlopen(program ? nullptr : object->l_name, RTLD_NOLOAD | RTLD_LAZY);
  void* const found = handle == nullptr ? nullptr : libc_dlsym()(handle, symbol);
  if (found == nullptr) dlerror();  // not the application's
  if (handle != nullptr) dlclose(handle);
  return found;
}

// Whether an object from `first` on, but before this library, defines the symbol.
bool defined_before_us(const link_map* first, const char* symbol) {
  for (const link_map* at = first; at != nullptr && at != order().ours; at = at->l_next) {
    const void* found = found_in(at, symbol);
    if (found != nullptr && object_of(found) == at) return true;
  }
  return false;
}

// Our function for `entry`, going on to `found`. A second libcuda in the process is left alone: one function of ours
// leads to one of the driver's.
const void* ours_for(Route route, Entry entry, const void* found) {
  if (lead(route, entry, const_cast<void*>(found))) return handler(route, entry);
  contained("a lookup", [&] {
    diagnose(std::string("the process has two drivers: one more ") + row(entry).symbol +
             " was handed out, and what goes through it is not seen");
  });
  return found;
}

// RTLD_NEXT and RTLD_DEFAULT must not find the hook's export where, without the hook, nothing would be found. Asked
// only when nothing behind us in the global scope has the symbol.
Answer answer_unseen(void* handle, Entry entry, const void* caller) {
  const char* symbol = row(entry).symbol;
  const DlsymFunction real = libc_dlsym();
  const Answer keep_caller{reinterpret_cast<const void*>(next_dlsym()), 0};
  link_map* const asking = object_of(caller);
  if (handle == RTLD_NEXT) {
    if (asking == nullptr || !order().before_us(asking)) return keep_caller;  // looks behind us only
    if (defined_before_us(asking->l_next, symbol)) return keep_caller;
    return {real(RTLD_NEXT, symbol), 1};  // null, and dlerror() says why
  }
  if (defined_before_us(order().program, symbol)) return keep_caller;
  // A library opened with RTLD_LOCAL sees its own dependencies as well.
  if (handle == RTLD_DEFAULT && asking != nullptr && asking != order().program) {
    void* found = found_in(asking, symbol);
    if (found != nullptr && object_of(found) != order().ours) {
      return {hooking() && in_libcuda(found) ? ours_for(Route::dlsym, entry, found) : found, 1};
    }
  }
  return {real(RTLD_NEXT, symbol), 1};
}

}  // namespace

Answer answer_dlsym(void* handle, const char* name, const void* caller) noexcept {
  const DlsymFunction real = next_dlsym();
  if (real == nullptr) return {nullptr, 1};
  const Answer keep_caller{reinterpret_cast<const void*>(real), 0};
  if (name == nullptr || name[0] != 'c' || name[1] != 'u') return keep_caller;
  const std::optional<Entry> entry = interposed(name);
  if (!entry) return keep_caller;

  if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || handle == order().program) {
    return behind_us(name) != nullptr ? keep_caller : answer_unseen(handle, *entry, caller);
  }
  if (!hooking()) return keep_caller;
  // With a real handle the caller does not matter.
  void* found = real(handle, name);
  if (found == nullptr || !(in_libcuda(found) || is_libcuda_handle(handle))) return {found, 1};
  return {ours_for(Route::dlsym, *entry, found), 1};
}

void* substitute(const char* name, void* found, int cuda_version, uint64_t flags) noexcept {
  if (!hooking() || name == nullptr || found == nullptr) return found;
  if (object_of(found) == order().ours) return found;  // a driver that refers to its own symbols by name
  const DefaultStream wanted =
      (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 ? DefaultStream::per_thread : DefaultStream::legacy;
  // The newest spelling that the caller and this driver know, as the driver chooses it. Where the driver gave another
  // one of them, its address tells which.
  std::optional<Entry> by_version, by_address;
  const void* by_version_address = nullptr;
  for (size_t i = 0; i < kEntries; ++i) {
    const Row& candidate = kRows[i];
    if (std::strcmp(candidate.base, name) != 0 && std::strcmp(candidate.symbol, name) != 0) continue;
    const void* exported = loaded_libcuda_symbol(candidate.symbol);
    if (exported == nullptr) continue;
    if (exported == found) by_address = static_cast<Entry>(i);
    if (candidate.since > cuda_version) continue;
    if (candidate.stream != DefaultStream::legacy && candidate.stream != wanted) continue;
    const bool better = !by_version || candidate.since > row(*by_version).since ||
                        (candidate.since == row(*by_version).since && candidate.stream == wanted);
    if (!better) continue;
    by_version = static_cast<Entry>(i);
    by_version_address = exported;
  }
  if (by_version_address == found || !by_address) by_address = by_version;
  return by_address ? const_cast<void*>(ours_for(Route::get_proc_address, *by_address, found)) : found;
}

}  // namespace foundry::hook
