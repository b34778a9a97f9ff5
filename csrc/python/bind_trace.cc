// Recording what Foundry's threads do (foundry/tracing.py).
#include "csrc/base/trace.h"
#include "csrc/python/bind.h"

namespace foundry::python {

namespace py = pybind11;

void bind_trace(py::module_& module) {
  module.def("trace_enable", &trace::enable, py::arg("enabled"));
  module.def("trace_name_thread", [](const std::string& name) { trace::name_thread(name); }, py::arg("name"));
  module.def("trace_take", [] {
    const trace::Recording recording = [] {
      py::gil_scoped_release release;
      return trace::take();
    }();
    py::list events;
    for (const trace::Event& event : recording.events) {
      events.append(py::make_tuple(event.name, event.detail, event.thread, event.begin_ns, event.end_ns, event.bytes,
                                   event.count));
    }
    return py::make_tuple(recording.threads, events, recording.dropped);
  });
}

}  // namespace foundry::python
