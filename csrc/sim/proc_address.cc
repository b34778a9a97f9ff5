// The table as data, and cuGetProcAddress on it.
#include <cstring>

#include "csrc/sim/device.h"
#include "csrc/sim/extension.h"
#include "csrc/sim/runtime.h"

#define F(base, symbol, since) \
  extern "C" __attribute__((visibility("hidden"))) decltype(symbol) foundry_sim_entry_##symbol;
#define P(base, symbol, since, suffix) \
  F(base, symbol, since)               \
  extern "C" __attribute__((visibility("hidden"))) decltype(symbol) foundry_sim_entry_##symbol##_##suffix;
#include "csrc/sim/api_table.inc"
#undef F
#undef P

namespace foundry::sim {
namespace {

const FnInfo kTable[] = {
#define F(base, symbol, since) \
  {#base, #symbol, since, nullptr, reinterpret_cast<void*>(&foundry_sim_entry_##symbol), nullptr},
#define P(base, symbol, since, suffix)                   \
  {#base,                                                \
   #symbol,                                              \
   since,                                                \
   #suffix,                                              \
   reinterpret_cast<void*>(&foundry_sim_entry_##symbol), \
   reinterpret_cast<void*>(&foundry_sim_entry_##symbol##_##suffix)},
#include "csrc/sim/api_table.inc"
#undef F
#undef P
};

struct Alias {
  const char* base;
  Fn fn;
  int since;
};
#define F(base, symbol, since)
#define P(base, symbol, since, suffix)
#define ALIAS(base, symbol, since) {#base, Fn::symbol, since},
const Alias kAliases[] = {
#include "csrc/sim/api_table.inc"
};
#undef F
#undef P

constexpr int kPerThreadSince = 7000;

CUdriverProcAddressQueryResult look_up(const char* name, int version, bool per_thread, void** found) {
  *found = nullptr;
  bool known = false;
  auto consider = [&](const char* base, const FnInfo& f, int since) {
    if (std::strcmp(base, name) != 0) return;
    known = true;
    if (since > version) return;
    *found = per_thread && f.per_thread_entry != nullptr && version >= kPerThreadSince ? f.per_thread_entry : f.entry;
  };
  for (const FnInfo& f : kTable) consider(f.base, f, f.since);
  for (const Alias& alias : kAliases) consider(alias.base, info(alias.fn), alias.since);
  if (*found != nullptr) return CU_GET_PROC_ADDRESS_SUCCESS;
  return known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

CUresult get_proc_address(const char* name, void** pfn, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || pfn == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "null argument");
  constexpr cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if ((flags & ~known) != 0 || flags == known) {
    return fail(CUDA_ERROR_INVALID_VALUE, "flags 0x%llx for %s", static_cast<unsigned long long>(flags), name);
  }
  if (version > driver_version()) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%s asked for version %d, the driver is %d", name, version, driver_version());
  }
  *status = look_up(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, pfn);
  return CUDA_SUCCESS;
}

}  // namespace

const FnInfo& info(Fn fn) { return kTable[static_cast<int>(fn)]; }

SIM_API(cuGetProcAddress, (const char* symbol, void** pfn, int version, cuuint64_t flags),
        (symbol, pfn, version, flags)) {
  CUdriverProcAddressQueryResult status;
  SIM_TRY(get_proc_address(symbol, pfn, version, flags, &status));
  return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_API(cuGetProcAddress_v2,
        (const char* symbol, void** pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status),
        (symbol, pfn, version, flags, status)) {
  CUdriverProcAddressQueryResult found;
  SIM_TRY(get_proc_address(symbol, pfn, version, flags, &found));
  if (status != nullptr) *status = found;
  return CUDA_SUCCESS;
}

// Private tables are no part of the published API.
SIM_API(cuGetExportTable, (const void** table, const CUuuid* id), (table, id)) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return fail(CUDA_ERROR_NOT_FOUND, "the simulated driver has no private tables");
}

}  // namespace foundry::sim

using namespace foundry::sim;

static const char* kSymbols[] = {
#define F(base, symbol, since) #symbol,
#define P(base, symbol, since, suffix) #symbol, #symbol "_" #suffix,
#include "csrc/sim/api_table.inc"
#undef F
#undef P
};

extern "C" __attribute__((visibility("default"))) size_t foundry_sim_symbol_count(void) { return std::size(kSymbols); }

extern "C" __attribute__((visibility("default"))) const char* foundry_sim_symbol(size_t index) {
  return index < std::size(kSymbols) ? kSymbols[index] : nullptr;
}
