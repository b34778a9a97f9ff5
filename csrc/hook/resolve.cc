#include "csrc/hook/cuda_api.h"

#include "csrc/hook/resolve.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "csrc/driver/driver.h"
#include "csrc/hook/settings.h"

namespace foundry::hook {
namespace {

std::atomic<void*> g_next[kRoutes][kEntries];
std::atomic<void*> g_libcuda{nullptr};  // our own reference: it cannot be unloaded any more

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

bool is_libcuda(const char* path) {
  constexpr char kName[] = "libcuda.so";
  const char* name = base_name(path);
  if (std::strncmp(name, kName, sizeof kName - 1) != 0) return false;
  return name[sizeof kName - 1] == '\0' || name[sizeof kName - 1] == '.';
}

std::string loaded_path() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        if (info->dlpi_name == nullptr || !is_libcuda(info->dlpi_name)) return 0;
        *static_cast<std::string*>(out) = info->dlpi_name;
        return 1;
      },
      &path);
  return path;
}

// A failed lookup of ours must not be found by the application's next dlerror().
void* quiet(void* found) {
  if (found == nullptr) dlerror();
  return found;
}

// Not under a lock: a thread that holds the loader's lock may call into the hook.
void* loaded_libcuda() {
  if (void* known = g_libcuda.load(std::memory_order_acquire)) return known;
  const std::string path = loaded_path();
  if (path.empty()) return nullptr;
  void* handle = quiet(dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY));
  if (handle != nullptr) g_libcuda.store(handle, std::memory_order_release);
  return handle;
}

}  // namespace

DlsymFunction libc_dlsym() noexcept {
  static std::atomic<DlsymFunction> known{nullptr};
  if (DlsymFunction function = known.load(std::memory_order_relaxed)) return function;
  // Since glibc 2.34 it lies in libc, before in libdl. With a version asked for, other interposers are passed over.
  void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (found == nullptr) found = quiet(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  const auto function = reinterpret_cast<DlsymFunction>(found);
  known.store(function, std::memory_order_relaxed);
  return function;
}

DlsymFunction next_dlsym() noexcept {
  static std::atomic<DlsymFunction> known{nullptr};
  if (DlsymFunction function = known.load(std::memory_order_relaxed)) return function;
  void* found = behind_us("dlsym");
  const auto function = found == nullptr ? libc_dlsym() : reinterpret_cast<DlsymFunction>(found);
  known.store(function, std::memory_order_relaxed);
  return function;
}

void* behind_us(const char* symbol) noexcept {
  const DlsymFunction lookup = libc_dlsym();
  return lookup == nullptr ? nullptr : quiet(lookup(RTLD_NEXT, symbol));
}

bool in_libcuda(const void* address) noexcept {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr && is_libcuda(info.dli_fname);
}

bool is_libcuda_handle(const void* handle) noexcept {
  return contained("the search for libcuda", false, [&] { return handle != nullptr && handle == loaded_libcuda(); });
}

void* loaded_libcuda_symbol(const char* symbol) noexcept {
  return contained("the search for libcuda", static_cast<void*>(nullptr), [&]() -> void* {
    const DlsymFunction lookup = libc_dlsym();
    void* library = lookup == nullptr ? nullptr : loaded_libcuda();
    return library == nullptr ? nullptr : quiet(lookup(library, symbol));
  });
}

void* libcuda_symbol(const char* symbol) noexcept {
  return contained("the search for libcuda", static_cast<void*>(nullptr), [&]() -> void* {
    if (loaded_libcuda() == nullptr) {
      // RTLD_LOCAL: our handle must not make driver symbols visible to anybody else.
      void* opened = quiet(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
      if (opened != nullptr) g_libcuda.store(opened, std::memory_order_release);
    }
    return loaded_libcuda_symbol(symbol);
  });
}

void* next(Route route, Entry entry) noexcept {
  std::atomic<void*>& slot = g_next[static_cast<size_t>(route)][static_cast<size_t>(entry)];
  if (void* known = slot.load(std::memory_order_acquire)) return known;
  // The other routes were set when the address was handed out.
  void* found = behind_us(row(entry).symbol);
  if (found == nullptr) found = loaded_libcuda_symbol(row(entry).symbol);
  if (found != nullptr) slot.store(found, std::memory_order_release);
  return found;
}

bool lead(Route route, Entry entry, void* target) noexcept {
  std::atomic<void*>& slot = g_next[static_cast<size_t>(route)][static_cast<size_t>(entry)];
  void* known = nullptr;
  return slot.compare_exchange_strong(known, target, std::memory_order_acq_rel) || known == target;
}

Result<driver::Driver> bind_driver() {
  return driver::Driver::bind([](const char* symbol) { return libcuda_symbol(symbol); });
}

const driver::Driver* driver_table() noexcept {
  static std::atomic<const driver::Driver*> table{nullptr};
  if (const driver::Driver* known = table.load(std::memory_order_acquire)) return known;
  if (!working()) return nullptr;
  return contained("binding the driver", static_cast<const driver::Driver*>(nullptr), [&]() -> const driver::Driver* {
    Result<driver::Driver> bound = bind_driver();
    if (!bound.ok()) {
      switch_off(bound.error().text);
      return nullptr;
    }
    // Never deleted: applications call us until the process is gone.
    const auto* fresh = new driver::Driver(*std::move(bound));
    const driver::Driver* known = nullptr;
    if (table.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) return fresh;
    delete fresh;
    return known;
  });
}

}  // namespace foundry::hook
