// SAVE: staging directory, tensors, snapshots, writing.
#include <optional>

#include "csrc/archive/inventory.h"
#include "csrc/archive/publish.h"
#include "csrc/python/bind.h"
#include "csrc/session/memory_scanner.h"
#include "csrc/session/saver.h"

namespace foundry::python {
namespace {

namespace py = pybind11;
using session::CaptureInputs;
using session::GraphSummary;
using session::Saver;
using session::SaveReport;
using session::TensorInfo;

// A staging directory whose manifest is held until publish: foundry.json is what makes a directory an archive.
class Staging {
 public:
  explicit Staging(const std::string& archive) : publication_(unwrap(archive::Publication::begin(archive))) {}

  archive::Publication& publication() {
    if (!publication_) throw Failure{Error{ErrorKind::state, 0, "this SAVE was published or discarded already"}};
    return *publication_;
  }
  void write_text(const std::string& name, const std::string& text) {
    if (name == archive::kManifestName) {
      manifest_ = text;
      return;
    }
    unwrap(archive::write_new_file(publication().directory(), name, std::as_bytes(std::span(text))));
  }
  std::vector<std::string> publish() {
    if (!manifest_) {
      throw Failure{
          Error{ErrorKind::state, 0, "foundry.json has not been written; an archive without it cannot be read"}};
    }
    archive::Publication& publication = this->publication();
    archive::Published published = unlocked([&] { return publication.publish(*manifest_); });
    publication_.reset();
    return published.warnings;
  }
  void discard() {
    if (publication_) unwrap(publication_->abandon());
    publication_.reset();
  }

 private:
  std::optional<archive::Publication> publication_;
  std::optional<std::string> manifest_;
};

// A MemoryScanner with the context that it works in.
struct Scanner {
  session::Process& process;
  CUcontext context;
  std::unique_ptr<session::MemoryScanner> scanner;

  static Result<std::unique_ptr<Scanner>> create(int device, bool host) {
    FOUNDRY_ASSIGN(session::Process * process, session::Process::get());
    FOUNDRY_ASSIGN(CUcontext context, process->context(device));
    driver::ScopedContext scope(process->driver(), context);
    FOUNDRY_TRY(scope.status());
    const session::DeviceCode code = host ? session::DeviceCode{} : session::DeviceCode::of(process->abi());
    FOUNDRY_ASSIGN(auto scanner, session::MemoryScanner::create(process->driver(), code));
    return std::unique_ptr<Scanner>(new Scanner{*process, context, std::move(scanner)});
  }
  ~Scanner() {
    const driver::ScopedContext scope(process.driver(), context);
    scanner.reset();
  }
  template <class Call>
  auto call(Call&& call) {
    return unlocked([&]() -> decltype(call()) {
      driver::ScopedContext scope(process.driver(), context);
      FOUNDRY_TRY(scope.status());
      return call();
    });
  }
};

std::function<bool(const TensorInfo&)> has_flag(uint32_t flag) {
  return [flag](const TensorInfo& tensor) { return (tensor.flags & flag) != 0; };
}

std::vector<session::FrameworkBlock> framework_blocks(const std::vector<std::tuple<uint64_t, uint64_t, bool>>& blocks) {
  std::vector<session::FrameworkBlock> list;
  for (const auto& [address, bytes, active] : blocks) list.push_back({address, bytes, active});
  return list;
}

using Description = std::tuple<std::string, uint64_t, std::string>;

}  // namespace

void bind_save(py::module_& module) {
  py::class_<TensorInfo>(module, "Tensor")
      .def(py::init([](std::string name, std::string dtype, uint32_t item_bytes, uint64_t address,
                       std::vector<int64_t> sizes, std::vector<int64_t> strides, uint64_t storage_address,
                       uint64_t storage_bytes, bool constant, bool is_mutable, bool output, bool exported) {
             TensorInfo tensor;
             tensor.name = std::move(name);
             tensor.dtype = std::move(dtype);
             tensor.item_bytes = item_bytes;
             tensor.address = address;
             tensor.sizes = std::move(sizes);
             tensor.strides = std::move(strides);
             tensor.storage_address = storage_address;
             tensor.storage_bytes = storage_bytes;
             tensor.flags = (constant ? archive::kConstant : 0u) | (is_mutable ? archive::kMutable : 0u) |
                            (output ? archive::kOutput : 0u) | (exported ? archive::kExport : 0u);
             tensor.bytes = unwrap(session::extent_bytes(tensor));
             return tensor;
           }),
           py::arg("name"), py::arg("dtype"), py::arg("item_bytes"), py::arg("address"), py::arg("sizes"),
           py::arg("strides"), py::arg("storage_address"), py::arg("storage_bytes"), py::arg("constant") = false,
           py::arg("mutable") = false, py::arg("output") = false, py::arg("export") = false)
      .def_readonly("name", &TensorInfo::name)
      .def_readonly("dtype", &TensorInfo::dtype)
      .def_readonly("item_bytes", &TensorInfo::item_bytes)
      .def_readonly("address", &TensorInfo::address)
      .def_readonly("nbytes", &TensorInfo::bytes)
      .def_readonly("sizes", &TensorInfo::sizes)
      .def_readonly("strides", &TensorInfo::strides)
      .def_readonly("storage_address", &TensorInfo::storage_address)
      .def_readonly("storage_bytes", &TensorInfo::storage_bytes)
      .def_readonly("storage", &TensorInfo::storage)
      .def_property_readonly("constant", has_flag(archive::kConstant))
      .def_property_readonly("mutable", has_flag(archive::kMutable))
      .def_property_readonly("output", has_flag(archive::kOutput))
      .def_property_readonly("export", has_flag(archive::kExport))
      .def_readonly("anchor", &TensorInfo::anchor);

  py::class_<GraphSummary>(module, "GraphSummary")
      .def_readonly("index", &GraphSummary::index)
      .def_readonly("name", &GraphSummary::name)
      .def_readonly("nodes", &GraphSummary::nodes)
      .def_readonly("edges", &GraphSummary::edges)
      .def_readonly("nodes_by_type", &GraphSummary::nodes_by_type)
      .def_readonly("outputs", &GraphSummary::outputs)
      .def_readonly("generator_increment", &GraphSummary::generator_increment);
  module.attr("ArchiveGraph") = module.attr("GraphSummary");

  py::class_<SaveReport>(module, "SaveReport")
      .def_readonly("graphs", &SaveReport::graphs)
      .def_readonly("left_out", &SaveReport::left_out)
      .def_readonly("warnings", &SaveReport::warnings)
      .def_readonly("bytes_by_file", &SaveReport::bytes_by_file)
      .def_readonly("mapped_bytes", &SaveReport::mapped_bytes)
      .def_readonly("content_bytes", &SaveReport::content_bytes)
      .def_readonly("stored_bytes", &SaveReport::stored_bytes)
      .def_readonly("images", &SaveReport::images)
      .def_readonly("image_bytes", &SaveReport::image_bytes)
      .def_readonly("milliseconds", &SaveReport::milliseconds);

  py::class_<Staging>(module, "Staging")
      .def(py::init<const std::string&>(), py::arg("archive"))
      .def_property_readonly("path", [](Staging& staging) { return staging.publication().staging_path(); })
      .def("write_text", &Staging::write_text, py::arg("name"), py::arg("text"))
      .def("publish", &Staging::publish)
      .def("discard", &Staging::discard);

  py::class_<Saver>(module, "Saver")
      .def(py::init([](int device) { return unlocked([=] { return Saver::create(device); }); }), py::arg("device"))
      .def(
          "add_graph",
          [](Saver& saver, uint64_t raw, const std::string& name) {
            return unlocked([&] { return saver.add_graph(reinterpret_cast<CUgraph>(raw), name); });
          },
          py::arg("raw_graph"), py::arg("name"))
      .def(
          "add_host_range",
          [](Saver& saver, const std::string& name, uint64_t address, uint64_t nbytes) {
            unlocked([&] { return saver.add_host_range({address, nbytes, name}); });
          },
          py::arg("name"), py::arg("address"), py::arg("nbytes"))
      .def_static("takes_capture_input", &CaptureInputs::takes, py::arg("tensor"))
      .def(
          "take_capture_inputs",
          [](Saver& saver, const std::vector<TensorInfo>& tensors) {
            unlocked([&] { return saver.take_capture_inputs(tensors); });
          },
          py::arg("tensors"))
      .def(
          "add_tensor", [](Saver& saver, const TensorInfo& tensor) { return unwrap(saver.add_tensor(tensor)); },
          py::arg("tensor"))
      .def(
          "set_outputs",
          [](Saver& saver, uint32_t graph, std::string tree, std::vector<uint32_t> tensors) {
            unwrap(saver.set_outputs(graph, std::move(tree), std::move(tensors)));
          },
          py::arg("graph"), py::arg("tree"), py::arg("tensors"))
      .def(
          "set_generator",
          [](Saver& saver, uint32_t graph, uint64_t increment, uint64_t seed, uint64_t offset) {
            unlocked([&] { return saver.set_generator(graph, increment, seed, offset); });
          },
          py::arg("graph"), py::arg("increment"), py::arg("seed"), py::arg("offset"))
      .def(
          "name_event",
          [](Saver& saver, uint64_t event, const std::string& name, uint32_t flags) {
            return unwrap(saver.name_event(reinterpret_cast<CUevent>(event), name, flags));
          },
          py::arg("event"), py::arg("name"), py::arg("flags"))
      .def(
          "set_blocks",
          [](Saver& saver, const std::vector<std::tuple<uint64_t, uint64_t, bool>>& blocks) {
            saver.set_blocks(framework_blocks(blocks));
          },
          py::arg("blocks"))
      .def(
          "watch_inputs",
          [](Saver& saver, const std::vector<std::tuple<uint64_t, uint64_t, bool>>& blocks, bool again) {
            const std::vector<session::FrameworkBlock> list = framework_blocks(blocks);
            unlocked([&] { return saver.watch_inputs(list, again); });
          },
          py::arg("blocks"), py::arg("again"))
      .def("examine",
           [](Saver& saver) {
             std::vector<std::pair<uint32_t, std::string>> doubts;
             for (const session::Doubt& doubt : unlocked([&] { return saver.examine(); })) {
               doubts.emplace_back(doubt.graph, doubt.name);
             }
             return doubts;
           })
      .def(
          "settle",
          [](Saver& saver, uint32_t graph, const std::string& refusal) { unwrap(saver.settle(graph, refusal)); },
          py::arg("graph"), py::arg("refusal"))
      .def("keep_state", [](Saver& saver) { unlocked([&] { return saver.keep_state(); }); })
      .def("restore_state", [](Saver& saver) { unlocked([&] { return saver.restore_state(); }); })
      .def(
          "fingerprint",
          [](Saver& saver, uint32_t graph) { return unlocked([&] { return saver.fingerprint(graph); }); },
          py::arg("graph"))
      .def(
          "expose", [](Saver& saver, uint32_t graph) { unlocked([&] { return saver.expose(graph); }); },
          py::arg("graph"))
      .def(
          "poison", [](Saver& saver, uint32_t pattern) { unlocked([&] { return saver.poison(pattern); }); },
          py::arg("pattern"))
      .def("untouched", [](Saver& saver) { return unlocked([&] { return saver.untouched(); }); })
      .def("heal", [](Saver& saver) { unlocked([&] { return saver.heal(); }); })
      .def(
          "put_capture_inputs",
          [](Saver& saver, uint32_t graph) { unlocked([&] { return saver.put_capture_inputs(graph); }); },
          py::arg("graph"))
      .def("changed_inputs", [](Saver& saver) { return unlocked([&] { return saver.changed_inputs(); }); })
      .def(
          "put_inputs", [](Saver& saver, bool earlier) { unlocked([&] { return saver.put_inputs(earlier); }); },
          py::arg("earlier"))
      .def(
          "output_fingerprint",
          [](Saver& saver, uint32_t graph) { return unlocked([&] { return saver.output_fingerprint(graph); }); },
          py::arg("graph"))
      .def(
          "note_writes", [](Saver& saver, bool earlier) { unlocked([&] { return saver.note_writes(earlier); }); },
          py::arg("earlier"))
      .def("unwritten_inputs", [](Saver& saver) { return saver.unwritten_inputs(); })
      .def("expose_inputs", [](Saver& saver) { return unlocked([&] { return saver.expose_inputs(); }); })
      .def(
          "settle_inputs",
          [](Saver& saver, uint32_t graph, const std::string& refusal) { unwrap(saver.settle_inputs(graph, refusal)); },
          py::arg("graph"), py::arg("refusal"))
      .def("judge_inputs", [](Saver& saver) { unwrap(saver.judge_inputs()); })
      .def("prepare_golden", [](Saver& saver) { unlocked([&] { return saver.prepare_golden(); }); })
      .def(
          "observe_golden",
          [](Saver& saver, uint32_t graph, uint64_t seed, uint64_t offset) {
            unlocked([&] { return saver.observe_golden(graph, seed, offset); });
          },
          py::arg("graph"), py::arg("seed"), py::arg("offset"))
      .def(
          "write_golden",
          [](Saver& saver, Staging& staging, uint32_t rank) {
            archive::Publication& publication = staging.publication();
            return unlocked([&] { return saver.write_golden(publication, rank); });
          },
          py::arg("staging"), py::arg("rank"))
      .def(
          "write",
          [](Saver& saver, Staging& staging, uint32_t rank, bool strict, bool compact) {
            archive::Publication& publication = staging.publication();
            return unlocked([&] { return saver.write(publication, rank, strict, compact); });
          },
          py::arg("staging"), py::arg("rank"), py::arg("strict"), py::arg("compact"));

  py::class_<Scanner>(module, "MemoryScanner")
      .def(py::init([](int device, bool host) { return unlocked([&] { return Scanner::create(device, host); }); }),
           py::arg("device"), py::arg("host") = false)
      .def_property_readonly("on_device", [](const Scanner& scanner) { return scanner.scanner->on_device(); })
      .def_property_readonly("note", [](const Scanner& scanner) { return scanner.scanner->note(); })
      .def(
          "summaries",
          [](Scanner& scanner, uint64_t address, uint64_t nbytes) {
            std::vector<std::tuple<uint64_t, uint64_t, bool, uint32_t>> found;
            for (const device::BlockSummary& block :
                 scanner.call([&] { return scanner.scanner->summaries(address, nbytes); })) {
              found.emplace_back(block.fingerprint[0], block.fingerprint[1], block.is_zero != 0, block.bytes);
            }
            return found;
          },
          py::arg("address"), py::arg("nbytes"))
      .def(
          "pointers",
          [](Scanner& scanner, uint64_t address, uint64_t nbytes,
             const std::vector<std::pair<uint64_t, uint64_t>>& windows) {
            std::vector<device::AddressRange> ranges;
            for (const auto& [begin, end] : windows) ranges.push_back({begin, end});
            std::vector<std::pair<uint64_t, uint64_t>> found;
            for (const device::PointerHit& hit :
                 scanner.call([&] { return scanner.scanner->pointers(address, nbytes, ranges); })) {
              found.emplace_back(hit.address, hit.value);
            }
            return found;
          },
          py::arg("address"), py::arg("nbytes"), py::arg("windows"));

  module.attr("POISON_PATTERNS") = session::Poison::kPatterns;
  module.def(
      "describe_files",
      [](const std::string& path) {
        std::vector<Description> files;
        const auto inventory = unlocked([&]() -> Result<std::vector<archive::FileDescription>> {
          FOUNDRY_ASSIGN(const archive::FileDescriptor directory, archive::open_directory(path));
          return archive::inventory(directory.get(), path);
        });
        for (const archive::FileDescription& file : inventory) {
          files.emplace_back(file.name, file.bytes, archive::hex(file.hash));
        }
        return files;
      },
      py::arg("staging_path"));
}

}  // namespace foundry::python
