// foundry._core: the C++ core for Python. Thin; foundry/_core.pyi documents every name.
#include "csrc/archive/records.h"
#include "csrc/base/version.h"
#include "csrc/python/bind.h"
#include "csrc/python/python_frames.h"
#include "csrc/session/process.h"

namespace foundry::python {

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::driver:
      return "driver";
    case ErrorKind::invalid:
      return "invalid";
    case ErrorKind::corrupt:
      return "corrupt";
    case ErrorKind::mismatch:
      return "mismatch";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::out_of_memory:
      return "out_of_memory";
    case ErrorKind::io:
      return "io";
    case ErrorKind::state:
      return "state";
  }
  return "invalid";
}

}  // namespace foundry::python

PYBIND11_MODULE(_core, module) {
  namespace py = pybind11;
  using namespace foundry::python;

  module.attr("VERSION") = FOUNDRY_VERSION;
  module.attr("FORMAT_VERSION") = foundry::archive::kFormatVersion;

  // Lives as long as the interpreter: the translator below outlives every module object.
  static PyObject* error_type = PyErr_NewExceptionWithDoc(
      "foundry._core.FoundryError", "Anything Foundry refuses or fails at. str() is the sentence for people.", nullptr,
      nullptr);
  if (error_type == nullptr) throw py::error_already_set();
  module.add_object("FoundryError", py::reinterpret_borrow<py::object>(error_type));
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Failure& failure) {
      py::object raised = py::reinterpret_borrow<py::object>(error_type)(failure.error.text);
      raised.attr("kind") = kind_name(failure.error.kind);
      raised.attr("code") = failure.error.code;
      PyErr_SetObject(error_type, raised.ptr());
    }
  });
  py::object(py::reinterpret_borrow<py::object>(error_type)).attr("kind") = "invalid";
  py::object(py::reinterpret_borrow<py::object>(error_type)).attr("code") = 0;

  bind_process(module);
  bind_zones(module);
  bind_save(module);
  bind_load(module);
  bind_golden(module);
  bind_journal(module);
  bind_trace(module);
  foundry::session::Process::when_ready(&offer_python_frames);
}
