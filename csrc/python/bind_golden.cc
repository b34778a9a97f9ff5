// Golden runs: read from an archive, and compared with restored graphs.
#include "csrc/python/bind.h"
#include "csrc/session/golden.h"

namespace foundry::python {
namespace {

namespace py = pybind11;
using session::ArchiveData;
using session::GoldenCheck;
using session::GoldenRun;
using session::GoldenVerdict;
using session::Loader;

using Inventory = std::vector<std::tuple<std::string, uint64_t, std::string>>;

}  // namespace

void bind_golden(py::module_& module) {
  py::class_<GoldenRun>(module, "GoldenRun")
      .def_readonly("index", &GoldenRun::index)
      .def_readonly("graph", &GoldenRun::graph)
      .def_readonly("name", &GoldenRun::name)
      .def_readonly("replays", &GoldenRun::replays)
      .def_readonly("seed", &GoldenRun::seed)
      .def_readonly("offset", &GoldenRun::offset);
  module.def(
      "golden_runs",
      [](const ArchiveData& archive, uint32_t rank, const Inventory& inventory) {
        const auto files = unwrap(file_descriptions(inventory));
        return session::golden_runs(unlocked([&] { return session::open_golden(archive, rank, files); }));
      },
      py::arg("archive"), py::arg("rank"), py::arg("inventory"));
  py::class_<GoldenVerdict>(module, "GoldenVerdict")
      .def_readonly("verdict", &GoldenVerdict::verdict)
      .def_readonly("difference", &GoldenVerdict::difference)
      .def_readonly("spread", &GoldenVerdict::spread)
      .def_readonly("dtype", &GoldenVerdict::dtype)
      .def_readonly("bytes", &GoldenVerdict::bytes);
  py::class_<GoldenCheck>(module, "GoldenCheck")
      .def(
          py::init([](Loader& loader, std::shared_ptr<ArchiveData> archive, uint32_t rank, const Inventory& inventory) {
            const auto files = unwrap(file_descriptions(inventory));
            return unlocked([&] { return GoldenCheck::open(loader, archive, rank, files); });
          }),
          py::arg("loader"), py::arg("archive"), py::arg("rank"), py::arg("inventory"), py::keep_alive<1, 2>())
      .def_property_readonly("runs", &GoldenCheck::runs)
      .def("begin", [](GoldenCheck& check) { return unlocked([&] { return check.begin(); }); })
      .def(
          "prepare", [](GoldenCheck& check, uint32_t run) { unlocked([&] { return check.prepare(run); }); },
          py::arg("run"))
      .def(
          "compare", [](GoldenCheck& check, uint32_t run) { return unlocked([&] { return check.compare(run); }); },
          py::arg("run"))
      .def("end", [](GoldenCheck& check) { unlocked([&] { return check.end(); }); });
}

}  // namespace foundry::python
