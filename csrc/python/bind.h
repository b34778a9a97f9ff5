// Shared by the binding files: errors become FoundryError, long work runs without the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/archive/inventory.h"
#include "csrc/base/result.h"

namespace foundry::python {

// Thrown by unwrap and translated to FoundryError(kind, code) by the module.
struct Failure {
  Error error;
};

template <class T>
T unwrap(Result<T> result) {
  if (!result.ok()) throw Failure{std::move(result).error()};
  return std::move(result).value();
}
inline void unwrap(Status status) {
  if (!status.ok()) throw Failure{std::move(status).error()};
}

// Runs `work` (which returns a Result) without the interpreter lock; raises with it.
template <class Work>
auto unlocked(Work&& work) {
  auto result = [&] {
    pybind11::gil_scoped_release release;
    return work();
  }();
  return unwrap(std::move(result));
}

const char* kind_name(ErrorKind kind);
const char* zone_kind_name(uint32_t kind);

// The inventory of a foundry.json as Python hands it over.
Result<std::vector<archive::FileDescription>> file_descriptions(
    const std::vector<std::tuple<std::string, uint64_t, std::string>>& inventory);

void bind_process(pybind11::module_& module);
void bind_zones(pybind11::module_& module);
void bind_save(pybind11::module_& module);
void bind_load(pybind11::module_& module);
void bind_golden(pybind11::module_& module);
void bind_journal(pybind11::module_& module);
void bind_trace(pybind11::module_& module);

}  // namespace foundry::python
