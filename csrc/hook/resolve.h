// Where the real functions are: the next dlsym, libcuda where somebody loaded it, and where each route leads on.
#pragma once

#include "csrc/base/result.h"
#include "csrc/hook/interposed.h"

namespace foundry::driver {
struct Driver;
}

namespace foundry::hook {

using DlsymFunction = void* (*)(void* handle, const char* name);

// The dlsym of libc, for the hook's own lookups.
DlsymFunction libc_dlsym() noexcept;
// The dlsym behind ours: that of another interposer where there is one, else of libc. Applications' lookups go there.
DlsymFunction next_dlsym() noexcept;

// What has this name behind this library in the global scope, else null. Leaves dlerror() clear.
void* behind_us(const char* symbol) noexcept;

// Whether `address` lies in a file called libcuda.so, libcuda.so.1 or libcuda.so.<version>.
bool in_libcuda(const void* address) noexcept;

bool is_libcuda_handle(const void* handle) noexcept;

// The exported function of the libcuda that is loaded already, null if there is none or it lacks the symbol. Opens no
// file. Leaves dlerror() clear.
void* loaded_libcuda_symbol(const char* symbol) noexcept;

// The same, but loads libcuda.so.1 where nobody has: for Foundry's own calls only.
void* libcuda_symbol(const char* symbol) noexcept;

// Where a call that came along `route` goes on to; null if the driver has no such function.
void* next(Route route, Entry entry) noexcept;
// Remembers where `route` leads for `entry`. False if it leads elsewhere already (a second libcuda in the process).
bool lead(Route route, Entry entry, void* target) noexcept;

// The driver functions that the hook itself calls, bound at the first call; null (and the hook switched off) where the
// driver is too old.
const driver::Driver* driver_table() noexcept;
// Binds anew; for the owner of the zones.
Result<driver::Driver> bind_driver();

}  // namespace foundry::hook
