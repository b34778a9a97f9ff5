// Journals and names of functions, for `foundry diff`.
#include "csrc/base/text.h"
#include "csrc/python/bind.h"
#include "csrc/session/journal.h"
#include "csrc/session/symbols.h"

namespace foundry::python {
namespace {

namespace py = pybind11;
using session::Journal;
using session::JournalView;
using session::Symbols;

struct Allocation {
  uint64_t ordinal = 0, address = 0, bytes = 0, stream = 0;
  uint32_t thread = 0, stack = 0;
  bool freed = false;
  std::string entry_point;
};

struct Frame {
  std::string module, build_id;
  uint64_t offset = 0;
};

struct PythonFrame {
  std::string function, file;
  uint32_t line = 0;
};

struct Stack {
  std::vector<Frame> frames;
  std::vector<PythonFrame> python_frames;
};

struct Zone {
  std::string name, kind;
  uint64_t base = 0;
};

std::vector<Zone> zones(const Journal& journal) {
  std::vector<Zone> list;
  for (const archive::ZoneRecord& zone : journal.view().zones) {
    list.push_back({std::string(journal.view().text(zone.name)), zone_kind_name(zone.kind), zone.base});
  }
  return list;
}

// The allocations of one zone, or of none, in their order.
std::vector<Allocation> allocations(const Journal& journal, std::optional<uint32_t> zone) {
  const JournalView& view = journal.view();
  std::vector<Allocation> list;
  std::map<uint64_t, size_t> by_ordinal;
  for (const archive::JournalRecord& record : view.events) {
    if (record.zone != zone.value_or(archive::kNone)) continue;
    if (record.kind == FOUNDRY_EVENT_FREE) {
      if (const auto found = by_ordinal.find(record.ordinal); found != by_ordinal.end())
        list[found->second].freed = true;
    } else if (record.kind == FOUNDRY_EVENT_ALLOC) {
      by_ordinal.emplace(record.ordinal, list.size());
      list.push_back({record.ordinal, record.address, record.bytes, record.stream, record.thread, record.stack, false,
                      std::string(view.text(record.entry_point))});
    }
  }
  return list;
}

Stack stack(const Journal& journal, uint32_t number) {
  const JournalView& view = journal.view();
  Stack out;
  if (number == 0) return out;
  if (number > view.stacks.size()) {
    throw Failure{Error{ErrorKind::invalid, 0, format("the journal has no stack %u", number)}};
  }
  const archive::StackRecord& record = view.stacks[number - 1];
  for (const archive::FrameRecord& frame : view.frames.subspan(record.first_frame, record.frame_count)) {
    Frame& shown = out.frames.emplace_back();
    shown.offset = frame.offset;
    if (frame.module == archive::kNone) continue;
    shown.module = view.text(view.modules[frame.module].name);
    shown.build_id = view.text(view.modules[frame.module].build_id);
  }
  for (const archive::PythonFrameRecord& frame :
       view.python_frames.subspan(record.first_python_frame, record.python_frame_count)) {
    out.python_frames.push_back(
        {std::string(view.text(frame.function)), std::string(view.text(frame.file)), frame.line});
  }
  return out;
}

}  // namespace

void bind_journal(py::module_& module) {
  py::class_<Zone>(module, "JournalZone")
      .def_readonly("name", &Zone::name)
      .def_readonly("kind", &Zone::kind)
      .def_readonly("base", &Zone::base);
  py::class_<Allocation>(module, "JournalAllocation")
      .def_readonly("ordinal", &Allocation::ordinal)
      .def_readonly("address", &Allocation::address)
      .def_readonly("bytes", &Allocation::bytes)
      .def_readonly("stream", &Allocation::stream)
      .def_readonly("thread", &Allocation::thread)
      .def_readonly("stack", &Allocation::stack)
      .def_readonly("freed", &Allocation::freed)
      .def_readonly("entry_point", &Allocation::entry_point);
  py::class_<Frame>(module, "JournalFrame")
      .def_readonly("module", &Frame::module)
      .def_readonly("build_id", &Frame::build_id)
      .def_readonly("offset", &Frame::offset);
  py::class_<PythonFrame>(module, "JournalPythonFrame")
      .def_readonly("function", &PythonFrame::function)
      .def_readonly("file", &PythonFrame::file)
      .def_readonly("line", &PythonFrame::line);
  py::class_<Stack>(module, "JournalStack")
      .def_readonly("frames", &Stack::frames)
      .def_readonly("python_frames", &Stack::python_frames);
  py::class_<Journal, std::shared_ptr<Journal>>(module, "Journal")
      .def_static(
          "of_archive",
          [](const std::string& path, uint32_t rank,
             const std::vector<std::tuple<std::string, uint64_t, std::string>>& inventory) {
            const std::vector<archive::FileDescription> files = unwrap(file_descriptions(inventory));
            return unlocked([&] { return Journal::of_archive(path, rank, files); });
          },
          py::arg("path"), py::arg("rank"), py::arg("inventory"))
      .def_static(
          "of_file", [](const std::string& path) { return unlocked([&] { return Journal::of_file(path); }); },
          py::arg("path"))
      .def_static(
          "of_process", [](int device) { return unlocked([&] { return Journal::of_process(device); }); },
          py::arg("device"))
      .def_property_readonly("zones", &zones)
      .def_property_readonly("events", [](const Journal& journal) { return journal.view().events.size(); })
      .def("allocations", &allocations, py::arg("zone"))
      .def("stack", &stack, py::arg("number"));
  module.def(
      "write_journal",
      [](int device, const std::string& path) {
        unlocked([&] { return session::write_process_journal(device, path); });
      },
      py::arg("device"), py::arg("path"));
  module.def("journal_recorded", [] {
    return (unlocked([] { return session::Process::get(); })->abi().journal_level() & FOUNDRY_JOURNAL_EVENTS) != 0;
  });

  py::class_<Symbols, std::shared_ptr<Symbols>>(module, "Symbols")
      .def(py::init([](const std::string& path) { return unlocked([&] { return Symbols::read(path); }); }),
           py::arg("path"))
      .def_property_readonly("build_id", &Symbols::build_id)
      .def("at", &Symbols::at, py::arg("address"));
  module.def(
      "read_build_id", [](const std::string& path) { return unlocked([&] { return session::read_build_id(path); }); },
      py::arg("path"));
}

}  // namespace foundry::python
