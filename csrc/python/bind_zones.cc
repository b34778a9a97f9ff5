// Zones and the allocator functions that place memory in them.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/python/allocator.h"
#include "csrc/python/bind.h"
#include "csrc/python/python_frames.h"
#include "csrc/session/process.h"

namespace foundry::python {
namespace {

namespace py = pybind11;
using session::abi_call;
using session::Process;

struct ZoneKind {
  const char* name;
  foundry_zone_kind kind;
};
constexpr ZoneKind kZoneKinds[] = {{"rebuilt", FOUNDRY_ZONE_REBUILT},
                                   {"ambient", FOUNDRY_ZONE_AMBIENT},
                                   {"graphs", FOUNDRY_ZONE_GRAPHS},
                                   {"private", FOUNDRY_ZONE_PRIVATE}};

Result<uint32_t> zone_kind(const std::string& name) {
  for (const ZoneKind& row : kZoneKinds) {
    if (name == row.name) return uint32_t{row.kind};
  }
  return Error{ErrorKind::invalid, 0, "'" + name + "' is no kind of zone; use rebuilt, ambient, graphs or private"};
}

const char* state_name(uint32_t state) {
  switch (state) {
    case FOUNDRY_RANGE_LIVE:
      return "live";
    case FOUNDRY_RANGE_QUARANTINED:
      return "quarantined";
    case FOUNDRY_RANGE_RELEASED:
      return "released";
    case FOUNDRY_RANGE_MATERIALIZED:
      return "materialized";
    default:
      return "unknown";
  }
}

// Binds a fallible ABI function without the interpreter lock.
template <class Call>
void call(Call&& work) {
  const HeldFrames frames;  // whoever asks for them below does not hold the lock any more
  unlocked([&]() -> Status {
    FOUNDRY_ASSIGN(Process * process, Process::get());
    return abi_call([&](foundry_error* error) { return work(process->abi(), error); });
  });
}

const foundry_abi& abi() { return unwrap(Process::get())->abi(); }

}  // namespace

const char* zone_kind_name(uint32_t kind) {
  for (const ZoneKind& row : kZoneKinds) {
    if (row.kind == kind) return row.name;
  }
  return "unknown";
}

void bind_zones(py::module_& module) {
  module.attr("MAX_ZONES") = FOUNDRY_MAX_ZONES;
  using Zone = foundry_zone_info;
  py::class_<Zone>(module, "ZoneInfo")
      .def_readonly("slot", &Zone::slot)
      .def_property_readonly("name", [](const Zone& zone) { return std::string(zone.name); })
      .def_property_readonly("kind", [](const Zone& zone) { return zone_kind_name(zone.kind); })
      .def_readonly("device", &Zone::device)
      .def_readonly("granularity", &Zone::granularity)
      .def_readonly("base", &Zone::base)
      .def_readonly("size", &Zone::size)
      .def_readonly("used_end", &Zone::used_end)
      .def_readonly("live_bytes", &Zone::live_bytes)
      .def_readonly("mapped_bytes", &Zone::mapped_bytes)
      .def_readonly("quarantined_bytes", &Zone::quarantined_bytes)
      .def_readonly("allocations", &Zone::allocations)
      .def_readonly("frees", &Zone::frees);
  using Range = foundry_range;
  py::class_<Range>(module, "Range")
      .def_readonly("address", &Range::address)
      .def_readonly("bytes", &Range::bytes)
      .def_readonly("mapped_bytes", &Range::mapped_bytes)
      .def_readonly("ordinal", &Range::ordinal)
      .def_readonly("slot", &Range::slot)
      .def_property_readonly("state", [](const Range& range) { return state_name(range.state); });

  module.def(
      "zone_open",
      [](int device, const std::string& name, const std::string& kind, uint64_t base, uint64_t size) {
        const uint32_t number = unwrap(zone_kind(kind));
        uint32_t slot = FOUNDRY_NO_ZONE;
        call([&](const foundry_abi& abi, foundry_error* error) {
          return abi.zone_open(device, name.c_str(), number, base, size, &slot, error);
        });
        return slot;
      },
      py::arg("device"), py::arg("name"), py::arg("kind"), py::arg("base") = 0, py::arg("size") = 0);
  module.def(
      "zone_close",
      [](uint32_t slot) { call([=](const foundry_abi& abi, foundry_error* e) { return abi.zone_close(slot, e); }); },
      py::arg("slot"));
  module.def("zones", [] { return unwrap(Process::get())->zones(); });
  module.def("ranges", [](uint32_t slot) { return unwrap(Process::get())->ranges(slot); }, py::arg("slot"));
  module.def(
      "zone_alloc",
      [](uint32_t slot, uint64_t nbytes, uint64_t alignment, uint64_t stream) {
        uint64_t address = 0;
        call([&](const foundry_abi& abi, foundry_error* error) {
          return abi.zone_alloc(slot, nbytes, alignment, stream, &address, error);
        });
        return address;
      },
      py::arg("slot"), py::arg("nbytes"), py::arg("alignment") = 0, py::arg("stream") = 0);
  module.def(
      "zone_free",
      [](uint64_t address, uint64_t stream) {
        call([=](const foundry_abi& abi, foundry_error* error) { return abi.zone_free(address, stream, error); });
      },
      py::arg("address"), py::arg("stream") = 0);
  module.def(
      "in_zone",
      [](uint64_t address) -> std::optional<uint32_t> {
        uint32_t slot = FOUNDRY_NO_ZONE;
        if (abi().in_zone(address, &slot) == 0) return std::nullopt;
        return slot;
      },
      py::arg("address"));
  module.def(
      "set_ambient",
      [](int device, std::optional<uint32_t> slot) {
        call([=](const foundry_abi& abi, foundry_error* error) {
          return abi.set_ambient(device, slot.value_or(FOUNDRY_NO_ZONE), error);
        });
      },
      py::arg("device"), py::arg("slot"));
  module.def(
      "capture_delta",
      [](int delta) {
        const foundry_abi& table = abi();
        py::gil_scoped_release release;  // +1 waits for frees that other threads are carrying out
        table.capture_delta(delta);
      },
      py::arg("delta"));
  module.def("seal", [](bool sealed) { abi().seal(sealed ? 1 : 0); }, py::arg("sealed"));
  module.def("release_quarantine", [] {
    call([](const foundry_abi& abi, foundry_error* error) { return abi.release_quarantine(FOUNDRY_NO_ZONE, error); });
  });

  py::class_<AllocatorSymbols>(module, "AllocatorSymbols")
      .def_readonly("library", &AllocatorSymbols::library)
      .def_readonly("malloc", &AllocatorSymbols::malloc_name)
      .def_readonly("free", &AllocatorSymbols::free_name)
      .def_readonly("malloc_address", &AllocatorSymbols::malloc_address)
      .def_readonly("free_address", &AllocatorSymbols::free_address);
  module.def(
      "allocator_symbols",
      [](uint32_t slot) {
        AllocatorSymbols symbols = allocator_symbols(slot);
        if (symbols.library.empty()) {
          throw Failure{Error{ErrorKind::invalid, 0,
                              format("there is no zone slot %u; a process has %u", slot, FOUNDRY_MAX_ZONES)}};
        }
        return symbols;
      },
      py::arg("slot"));
  module.def("take_allocation_errors", &take_allocation_errors);
}

}  // namespace foundry::python
