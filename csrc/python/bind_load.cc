// Reading archives and restoring them into this process.
#include "csrc/archive/stale.h"
#include "csrc/base/text.h"
#include "csrc/python/bind.h"
#include "csrc/session/loader.h"

namespace foundry::python {
namespace {

namespace py = pybind11;
using session::ArchiveData;
using session::Loader;
using session::LoadStats;
using session::ZoneSummary;

constexpr graph::RestoreTuning kTuning;

struct ImageSummary {
  std::string hash, format, source;
  uint64_t bytes = 0;
};

struct PointerSummary {
  std::string graph, kernel, pointer_class, target;
  uint32_t node = 0, offset = 0;
  int64_t parameter = 0;
  uint64_t value = 0;
};

const char* image_format_name(uint32_t format) {
  switch (format) {
    case FOUNDRY_IMAGE_FATBIN:
      return "fatbin";
    case FOUNDRY_IMAGE_ELF:
      return "elf";
    case FOUNDRY_IMAGE_PTX:
      return "ptx";
    default:
      return "unknown";
  }
}

const char* pointer_class_name(uint32_t pointer_class) {
  switch (static_cast<archive::PointerClass>(pointer_class)) {
    case archive::PointerClass::anchor:
      return "anchor";
    case archive::PointerClass::materialized:
      return "materialized";
    case archive::PointerClass::module_global:
      return "module global";
    case archive::PointerClass::host:
      return "host";
    case archive::PointerClass::relocatable:
      return "relocatable";
    case archive::PointerClass::rebuilt:
      return "rebuilt";
    case archive::PointerClass::padding:
      return "padding";
    case archive::PointerClass::dangling:
      return "dangling";
  }
  return "unknown";
}

std::vector<ImageSummary> images(const ArchiveData& archive) {
  const graph::GraphView view = archive.graphs();
  std::vector<ImageSummary> list;
  for (const archive::ImageRecord& record : view.images) {
    if (record.bytes == 0) continue;  // not stored
    list.push_back({archive::hex(record.hash), image_format_name(record.format), std::string(view.text(record.source)),
                    record.bytes});
  }
  return list;
}

std::vector<PointerSummary> pointers(const ArchiveData& archive) {
  const graph::GraphView view = archive.graphs();
  const std::vector<session::TensorInfo> tensors = session::read_tensors(archive.memory());
  std::vector<PointerSummary> list;
  for (const archive::PointerRecord& record : view.pointers) {
    PointerSummary pointer;
    const archive::GraphRecord& graph = view.graphs[record.graph];
    pointer.graph = view.text(graph.name);
    pointer.node = record.node;
    const archive::NodeRecord& node = view.nodes[graph.first_node + record.node];
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) {
      pointer.kernel = demangle(std::string(view.text(view.functions[view.kernels[node.payload].function].name)));
    }
    // Ends of copies and access windows have no parameter: -1, -2, -3 (records.h).
    pointer.parameter = record.param >= 0xfffffff0u ? -1 - static_cast<int64_t>(record.param - 0xfffffff0u)
                                                    : static_cast<int64_t>(record.param);
    pointer.offset = record.offset;
    pointer.value = record.value;
    pointer.pointer_class = pointer_class_name(record.pointer_class);
    if (record.target != archive::kNone) {
      if (record.pointer_class == static_cast<uint32_t>(archive::PointerClass::anchor)) {
        pointer.target = tensors[record.target].name;
      } else if (record.pointer_class == static_cast<uint32_t>(archive::PointerClass::module_global)) {
        pointer.target = view.text(view.module_globals[record.target].symbol);
      } else if (record.pointer_class == static_cast<uint32_t>(archive::PointerClass::host)) {
        pointer.target = view.text(view.host_ranges[record.target].name);
      }
    }
    list.push_back(std::move(pointer));
  }
  return list;
}

}  // namespace

Result<std::vector<archive::FileDescription>> file_descriptions(
    const std::vector<std::tuple<std::string, uint64_t, std::string>>& inventory) {
  std::vector<archive::FileDescription> files;
  for (const auto& [name, bytes, hash] : inventory) {
    archive::FileDescription file;
    file.name = name;
    file.bytes = bytes;
    if (!archive::parse_hex(hash, &file.hash)) {
      return Error{ErrorKind::corrupt, 0,
                   format("foundry.json lists %s with a hash that is no 128-bit hexadecimal number", name.c_str())};
    }
    files.push_back(std::move(file));
  }
  return files;
}

void bind_load(py::module_& module) {
  module.def(
      "read_text",
      [](const std::string& path, const std::string& name) {
        return unlocked([&]() -> Result<std::string> {
          FOUNDRY_ASSIGN(const archive::FileDescriptor directory, archive::open_directory(path));
          return archive::read_text_file(directory.get(), name);
        });
      },
      py::arg("archive"), py::arg("name"));
  module.def(
      "archive_warnings",
      [](const std::string& path) {
        return unlocked([&]() -> Result<std::vector<std::string>> {
          FOUNDRY_ASSIGN(const archive::FileDescriptor directory, archive::open_directory(path));
          return archive::trust_warnings(directory.get(), path);
        });
      },
      py::arg("archive"));
  py::class_<archive::Stale>(module, "Stale")
      .def_readonly("path", &archive::Stale::path)
      .def_readonly("pid", &archive::Stale::pid)
      .def_readonly("bytes", &archive::Stale::bytes)
      .def_readonly("restorable", &archive::Stale::restorable);
  module.def(
      "list_stale", [](const std::string& target) { return unwrap(archive::list_stale(target)); }, py::arg("archive"));
  module.def(
      "remove_stale", [](const std::string& target) { return unwrap(archive::remove_stale(target)); },
      py::arg("archive"));

  py::class_<ImageSummary>(module, "ArchiveImage")
      .def_readonly("hash", &ImageSummary::hash)
      .def_readonly("bytes", &ImageSummary::bytes)
      .def_readonly("format", &ImageSummary::format)
      .def_readonly("source", &ImageSummary::source);
  py::class_<ZoneSummary>(module, "ArchiveZone")
      .def_readonly("name", &ZoneSummary::name)
      .def_property_readonly("kind", [](const ZoneSummary& zone) { return zone_kind_name(zone.kind); })
      .def_readonly("base", &ZoneSummary::base)
      .def_readonly("size", &ZoneSummary::size)
      .def_readonly("used_end", &ZoneSummary::used_end)
      .def_readonly("allocations", &ZoneSummary::allocations)
      .def_readonly("allocated_bytes", &ZoneSummary::allocated_bytes)
      .def_readonly("mapped_bytes", &ZoneSummary::mapped_bytes)
      .def_readonly("content_bytes", &ZoneSummary::content_bytes);
  py::class_<PointerSummary>(module, "PointerSummary")
      .def_readonly("graph", &PointerSummary::graph)
      .def_readonly("node", &PointerSummary::node)
      .def_readonly("kernel", &PointerSummary::kernel)
      .def_readonly("parameter", &PointerSummary::parameter)
      .def_readonly("offset", &PointerSummary::offset)
      .def_readonly("value", &PointerSummary::value)
      .def_readonly("pointer_class", &PointerSummary::pointer_class)
      .def_readonly("target", &PointerSummary::target);

  py::class_<ArchiveData, std::shared_ptr<ArchiveData>>(module, "Archive")
      .def(py::init([](const std::string& path, uint32_t rank,
                       const std::vector<std::tuple<std::string, uint64_t, std::string>>& inventory) {
             const std::vector<archive::FileDescription> files = unwrap(file_descriptions(inventory));
             return unlocked([&] { return ArchiveData::open(path, rank, files); });
           }),
           py::arg("path"), py::arg("rank"), py::arg("inventory"))
      .def_property_readonly("graphs", [](const ArchiveData& archive) { return session::summarize(archive.graphs()); })
      .def_property_readonly("images", &images)
      .def_property_readonly("zones", &ArchiveData::zones)
      .def_property_readonly("tensors",
                             [](const ArchiveData& archive) { return session::read_tensors(archive.memory()); })
      .def_property_readonly("events",
                             [](const ArchiveData& archive) { return session::named_events(archive.graphs()); })
      .def("pointers", &pointers)
      .def("verify_images", [](const ArchiveData& archive) { unlocked([&] { return archive.verify_images(); }); });

  const auto stream_of = [](uint64_t stream) { return reinterpret_cast<CUstream>(stream); };
  py::class_<session::Event>(module, "Event")
      .def_property_readonly("handle",
                             [](const session::Event& event) { return reinterpret_cast<uint64_t>(event.handle()); })
      .def(
          "record",
          [=](const session::Event& event, uint64_t stream) {
            unlocked([&] { return event.record(stream_of(stream)); });
          },
          py::arg("stream"))
      .def(
          "wait",
          [=](const session::Event& event, uint64_t stream) {
            unlocked([&] { return event.wait(stream_of(stream)); });
          },
          py::arg("stream"))
      .def("synchronize", [](const session::Event& event) { unlocked([&] { return event.synchronize(); }); })
      .def("query", [](const session::Event& event) { return unlocked([&] { return event.query(); }); });

  py::class_<LoadStats>(module, "LoadStats")
      .def_readonly("milliseconds", &LoadStats::milliseconds)
      .def_readonly("mapped_bytes", &LoadStats::mapped_bytes)
      .def_readonly("content_bytes", &LoadStats::content_bytes)
      .def_readonly("images", &LoadStats::images)
      .def_readonly("functions", &LoadStats::functions)
      .def_readonly("nodes", &LoadStats::nodes)
      .def_readonly("exec_device_bytes", &LoadStats::exec_device_bytes)
      .def_readonly("exec_host_bytes", &LoadStats::exec_host_bytes)
      .def_readonly("execs", &LoadStats::execs)
      .def_readonly("evicted", &LoadStats::evicted)
      .def_readonly("rebuilt", &LoadStats::rebuilt);
  py::class_<Loader>(module, "Loader")
      .def(py::init([](std::shared_ptr<ArchiveData> archive, int device) {
             return unlocked([&] { return Loader::create(archive, device); });
           }),
           py::arg("archive"), py::arg("device"))
      .def("open_zones", [](Loader& loader) { return unlocked([&] { return loader.open_zones(); }); })
      .def("map", [](Loader& loader) { unlocked([&] { return loader.map(); }); })
      .def("wait_content", [](Loader& loader) { unlocked([&] { return loader.wait_content(); }); })
      .def(
          "claim",
          [](Loader& loader, uint64_t address, uint64_t nbytes) {
            unlocked([&] { return loader.claim(address, nbytes); });
          },
          py::arg("address"), py::arg("nbytes"))
      .def(
          "start",
          [](Loader& loader, std::vector<uint32_t> order, uint32_t image_threads, uint32_t graph_threads,
             bool grow_heaps, uint64_t exec_budget) {
            const graph::RestoreTuning tuning{image_threads, graph_threads, grow_heaps, true};
            unlocked([&] { return loader.start(std::move(order), tuning, exec_budget); });
          },
          py::arg("order"), py::kw_only(), py::arg("image_threads") = kTuning.image_threads,
          py::arg("graph_threads") = kTuning.graph_threads, py::arg("grow_heaps") = kTuning.grow_heaps,
          py::arg("exec_budget") = 0)
      .def(
          "register_host",
          [](Loader& loader, const std::string& name, uint64_t address, uint64_t nbytes) {
            unlocked([&] { return loader.register_host({address, nbytes, name}); });
          },
          py::arg("name"), py::arg("address"), py::arg("nbytes"))
      .def("settle",
           [](Loader& loader) {
             unlocked([&] {
               loader.settle();
               return success();
             });
           })
      .def("cancel",
           [](Loader& loader) {
             py::gil_scoped_release release;
             loader.cancel();
           })
      .def(
          "wait", [](Loader& loader, uint32_t graph) { unlocked([&] { return loader.wait(graph); }); },
          py::arg("graph"))
      .def(
          "launch",
          [](Loader& loader, uint32_t graph, uint64_t stream) {
            unlocked([&] { return loader.launch(graph, reinterpret_cast<CUstream>(stream)); });
          },
          py::arg("graph"), py::arg("stream"))
      .def(
          "launch_random",
          [](Loader& loader, uint32_t graph, uint64_t stream, uint64_t seed, uint64_t offset) {
            unlocked([&] { return loader.launch_random(graph, reinterpret_cast<CUstream>(stream), seed, offset); });
          },
          py::arg("graph"), py::arg("stream"), py::arg("seed"), py::arg("offset"))
      .def(
          "event", [](Loader& loader, const std::string& name) { return unlocked([&] { return loader.event(name); }); },
          py::arg("name"))
      .def("pin", [](Loader& loader) { unlocked([&] { return loader.pin(); }); })
      .def("stats", &Loader::stats)
      .def("close", [](Loader& loader) {
        py::gil_scoped_release release;
        loader.close();
      });
}

}  // namespace foundry::python
