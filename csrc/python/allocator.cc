#include "csrc/python/allocator.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <array>
#include <mutex>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/text.h"
#include "csrc/session/process.h"

namespace foundry::python {
namespace {

struct Failures {
  std::mutex mutex;
  std::vector<std::string> list;
};

Failures& failures() {
  static Failures failures;
  return failures;
}

void record(std::string sentence) {
  Failures& all = failures();
  const std::lock_guard lock(all.mutex);
  // Somebody who retries for ever must not fill the memory with sentences.
  if (all.list.size() < 256) all.list.push_back(std::move(sentence));
}

void* zone_malloc(uint32_t slot, ssize_t bytes, void* stream) noexcept {
  try {
    if (bytes <= 0) return nullptr;
    const auto process = session::Process::get();
    if (!process.ok()) {
      record(process.error().text);
      return nullptr;
    }
    uint64_t address = 0;
    foundry_error error{};
    const int code = process.value()->abi().zone_alloc(slot, static_cast<uint64_t>(bytes), 0,
                                                       reinterpret_cast<uint64_t>(stream), &address, &error);
    if (code != 0) {
      record(error.text);
      return nullptr;
    }
    return reinterpret_cast<void*>(address);
  } catch (const std::exception& failure) {
    record(std::string("an allocation in a zone failed: ") + failure.what());
    return nullptr;
  }
}

void zone_free(void* address, void* stream) noexcept {
  try {
    if (address == nullptr) return;
    const auto process = session::Process::get();
    if (!process.ok()) {
      record(process.error().text);
      return;
    }
    const foundry_abi& abi = process.value()->abi();
    foundry_error error{};
    if (abi.zone_free(reinterpret_cast<uint64_t>(address), reinterpret_cast<uint64_t>(stream), &error) != 0) {
      record(error.text);
    }
  } catch (const std::exception& failure) {
    record(std::string("a free in a zone failed: ") + failure.what());
  }
}

}  // namespace
}  // namespace foundry::python

#define FOUNDRY_ZONE_SLOTS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

#define FOUNDRY_EXPORTED extern "C" __attribute__((visibility("default")))
#define FOUNDRY_ZONE_FUNCTIONS(slot)                                                          \
  FOUNDRY_EXPORTED void* foundry_zone_malloc_##slot(ssize_t bytes, int, void* stream) {       \
    return foundry::python::zone_malloc(slot, bytes, stream);                                 \
  }                                                                                           \
  FOUNDRY_EXPORTED void foundry_zone_free_##slot(void* address, ssize_t, int, void* stream) { \
    foundry::python::zone_free(address, stream);                                              \
  }
FOUNDRY_ZONE_SLOTS(FOUNDRY_ZONE_FUNCTIONS)

namespace foundry::python {

AllocatorSymbols allocator_symbols(uint32_t slot) {
  struct Row {
    const char *malloc_name, *free_name;
    void *malloc_function, *free_function;
  };
#define FOUNDRY_ZONE_ROW(slot)                                                                                        \
  Row{"foundry_zone_malloc_" #slot, "foundry_zone_free_" #slot, reinterpret_cast<void*>(&foundry_zone_malloc_##slot), \
      reinterpret_cast<void*>(&foundry_zone_free_##slot)},
  static const std::array kRows{FOUNDRY_ZONE_SLOTS(FOUNDRY_ZONE_ROW)};
  static_assert(kRows.size() == FOUNDRY_MAX_ZONES);
  if (slot >= kRows.size()) return {};
  const Row& row = kRows[slot];
  Dl_info info{};
  if (dladdr(row.malloc_function, &info) == 0 || info.dli_fname == nullptr) return {};
  return {info.dli_fname, row.malloc_name, row.free_name, reinterpret_cast<uint64_t>(row.malloc_function),
          reinterpret_cast<uint64_t>(row.free_function)};
}

std::vector<std::string> take_allocation_errors() {
  Failures& all = failures();
  const std::lock_guard lock(all.mutex);
  return std::exchange(all.list, {});
}

}  // namespace foundry::python
