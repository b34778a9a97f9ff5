// The owner of this process's zones behind the C ABI: the hook and foundry._core each make one from this.
#pragma once

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/result.h"
#include "csrc/driver/driver.h"
#include "csrc/layout/diagnoses.h"
#include "csrc/layout/journal.h"
#include "csrc/layout/journal_level.h"
#include "csrc/layout/zones.h"

namespace foundry::layout {

// What the hook and _core do differently. Strings must live as long as the process.
struct OwnerConfig {
  const char* owner = "core";  // "hook" or "core"
  const char* build = "";
  int sm_target = 0;
  bool routes_ambient = false;  // the hook: plain allocations can be sent to a zone
  JournalLevel journal;         // what is recorded, from the start

  // Binds the driver when the first zone is opened; asked again after a failure.
  Result<driver::Driver> (*bind)() = nullptr;
  // The real driver function behind an exported symbol, null if there is none.
  void* (*driver_symbol)(const char* symbol) = nullptr;
  // Code images; null: there are none.
  size_t (*images)(foundry_image* out, size_t capacity) = nullptr;
  // Device code; null: there is none.
  size_t (*device_code)(uint32_t which, const void** data) = nullptr;
  // Null: the journal and the diagnoses below.
  size_t (*events)(uint64_t first, foundry_event* out, size_t capacity) = nullptr;
  size_t (*diagnoses)(char* out, size_t capacity) = nullptr;
};

// Sets up the one owner of this library and returns its table; later calls return the same table and ignore `config`.
// Costs nothing (no driver call, nothing opened) until a zone is opened.
const foundry_abi* make_owner(const OwnerConfig& config);

// For code in the same library as the owner (the hook). All outlive every caller.
Journal& owner_journal();
Diagnoses& owner_diagnoses();
// The zones if there are any yet, else null: nothing can be in a zone then.
Zones* owner_zones();
// Binds the driver where that has not happened.
Result<Zones*> ensure_owner_zones();

// Writes an Error into the ABI's form; returns the status, which is 1 + ErrorKind.
int fill(foundry_error* out, const Error& error);
// The way back, for users of an owner in another library.
Error read(const foundry_error& error);

}  // namespace foundry::layout
