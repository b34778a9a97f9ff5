#include "csrc/session/saver.h"

#include <algorithm>
#include <set>
#include <utility>

#include "csrc/archive/strings.h"
#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "csrc/graph/audit_text.h"
#include "csrc/graph/node_types.h"
#include "csrc/session/golden.h"
#include "csrc/session/graph_walk.h"
#include "csrc/session/host_ranges.h"
#include "csrc/session/image_store.h"

namespace foundry::session {
namespace {

// Sentences kept per graph that is left out: the first ones name the cause.
constexpr size_t kMostSentences = 4;

}  // namespace

std::vector<GraphSummary> summarize(const graph::GraphView& view) {
  std::vector<GraphSummary> graphs;
  for (uint32_t index = 0; index < view.graphs.size(); ++index) {
    const archive::GraphRecord& record = view.graphs[index];
    if ((record.flags & (archive::kGraphIsChild | archive::kGraphLeftOut)) != 0) continue;
    GraphSummary summary;
    summary.index = index;
    summary.name = view.text(record.name);
    summary.nodes = record.node_count;
    summary.edges = record.edge_count;
    summary.outputs = view.text(record.outputs);
    summary.generator_increment = record.generator_increment;
    summary.generator_seed = record.generator_seed;
    summary.generator_offset = record.generator_offset;
    for (const archive::NodeRecord& node : view.nodes.subspan(record.first_node, record.node_count)) {
      const graph::NodeTypeInfo* type = graph::node_type_info(node.type);
      summary.nodes_by_type[type != nullptr ? type->words : "unknown"] += 1;
    }
    graphs.push_back(std::move(summary));
  }
  return graphs;
}

Saver::Saver(Process& process, int device, CUcontext context)
    : process_(process),
      device_(device),
      context_(context),
      images_(process.driver(), process.abi()),
      snapshotter_(process.driver(), images_),
      origins_(process) {}

Saver::~Saver() {
  const driver::ScopedContext scope(process_.driver(), context_);
  scanner_.reset();
  copies_.reset();
}

Result<std::unique_ptr<Saver>> Saver::create(int device) {
  FOUNDRY_ASSIGN(Process * process, Process::get());
  if (!process->hooked()) {
    return Error{ErrorKind::state, 0,
                 "SAVE needs libcuda_hook.so preloaded, which sees code images and allocations; start the program with "
                 "`foundry run --save -- <command>`"};
  }
  FOUNDRY_ASSIGN(CUcontext context, process->context(device));
  std::unique_ptr<Saver> saver(new Saver(*process, device, context));
  const driver::Driver& driver = process->driver();
  CUdevice handle = 0;
  int major = 0;
  int minor = 0;
  FOUNDRY_CU(driver, cuDeviceGet, &handle, device);
  FOUNDRY_CU(driver, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
  FOUNDRY_CU(driver, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
  saver->capability_ = static_cast<uint32_t>(10 * major + minor);
  for (const foundry_zone_info& zone : process->zones()) {
    for (const foundry_range& range : process->ranges(zone.slot)) {
      saver->first_ordinal_ = std::max(saver->first_ordinal_, range.ordinal + 1);
    }
  }
  return saver;
}

Result<uint32_t> Saver::add_graph(CUgraph graph, const std::string& name) {
  Stopwatch watch;
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_ASSIGN(const uint32_t index, snapshotter_.add(graph, name));
  capture_inputs_.keep(index);
  snapshot_ms_ += watch.lap();
  return index;
}

Status Saver::take_capture_inputs(std::span<const TensorInfo> tensors) {
  Stopwatch watch;
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  if (!tensors.empty()) FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  FOUNDRY_ASSIGN(DeviceMemory * device, copies());
  FOUNDRY_TRY(capture_inputs_.take(*device, tensors));
  snapshot_ms_ += watch.lap();
  return success();
}

Status Saver::add_host_range(graph::NamedRange range) {
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_TRY(check_new_range(process_.driver(), snapshotter_.host_ranges(), range));
  archive::HostRangeRecord record{};
  record.name = snapshotter_.tables().graphs_strings.add(range.name);
  record.address = range.address;
  record.bytes = range.bytes;
  snapshotter_.tables().host_ranges.push_back(record);
  snapshotter_.register_host_range(std::move(range));
  return success();
}

Result<bool> Saver::name_event(CUevent event, const std::string& name, uint32_t flags) {
  if (name.empty() || !archive::is_text(name)) return Error{ErrorKind::invalid, 0, "an event needs a name in UTF-8"};
  return snapshotter_.name_event(event, name, flags);
}

Status Saver::set_outputs(uint32_t graph, std::string tree, std::vector<uint32_t> tensors) {
  if (graph >= snapshotter_.tables().graphs.size()) {
    return Error{ErrorKind::invalid, 0, format("there is no graph %u to set outputs for", graph)};
  }
  for (const uint32_t tensor : tensors) {
    if (tensor >= tensors_.tensors().size()) {
      return Error{ErrorKind::invalid, 0,
                   format("outputs of graph %u name tensor %u, which was not added", graph, tensor)};
    }
  }
  outputs_[graph] = {std::move(tree), std::move(tensors)};
  return success();
}

std::vector<graph::Anchor> Saver::anchors() const {
  std::vector<graph::Anchor> anchors;
  const auto& tensors = tensors_.tensors();
  for (uint32_t index = 0; index < tensors.size(); ++index) {
    if ((tensors[index].flags & (archive::kConstant | archive::kMutable)) == 0 || tensors[index].bytes == 0) continue;
    // The storage, not the view: a graph may read any part of what the anchor keeps in place.
    anchors.push_back({tensors[index].storage_address, tensors[index].storage_bytes, index});
  }
  return anchors;
}

void Saver::leave_out(uint32_t graph, std::string sentence, SaveReport& report) {
  graph::GraphTables& tables = snapshotter_.tables();
  tables.graphs[graph].flags |= archive::kGraphLeftOut;
  report.left_out[std::string(tables.view().text(tables.graphs[graph].name))].push_back(std::move(sentence));
}

void Saver::leave_out(uint32_t graph, const std::vector<size_t>& findings, Examination& found) {
  const graph::GraphTables& tables = snapshotter_.tables();
  graph::AuditInput input;
  input.graphs = tables.view();
  input.memory = &found.memory.map;
  input.origins = &origins_;
  std::vector<graph::Holder> holders;
  for (size_t i = 0; i < std::min(findings.size(), kMostSentences); ++i) {
    const graph::Finding& finding = found.audit.findings[findings[i]];
    std::string text = finding.text;
    if (text.empty()) {
      if (holders.empty()) holders = graph::holders_of(input.graphs);
      text = graph::finding_text(input, holders, tables.pointers[finding.pointer], finding.kind);
    }
    leave_out(graph, std::move(text), found.report);
  }
  if (findings.size() > kMostSentences) {
    leave_out(graph, format("and %zu more addresses of this graph", findings.size() - kMostSentences), found.report);
  }
}

void Saver::judge(Examination& found) {
  const graph::GraphTables& tables = snapshotter_.tables();
  std::map<uint32_t, std::vector<size_t>> certain;
  for (size_t index = 0; index < found.audit.findings.size(); ++index) {
    const graph::Finding& finding = found.audit.findings[index];
    const bool freed = finding.kind == graph::FindingKind::dangling &&
                       found.memory.map.range_of(tables.pointers[finding.pointer].value) != archive::kNone;
    (freed ? found.doubts : certain)[finding.graph].push_back(index);
  }
  for (auto& [graph, findings] : certain) {
    const auto doubts = found.doubts.find(graph);
    if (doubts != found.doubts.end()) {
      findings.insert(findings.end(), doubts->second.begin(), doubts->second.end());
      std::sort(findings.begin(), findings.end());
      found.doubts.erase(doubts);
    }
    leave_out(graph, findings, found);
  }
  std::erase_if(found.doubts, [&](const auto& doubt) {
    const bool out = (tables.graphs[doubt.first].flags & archive::kGraphLeftOut) != 0;
    if (out) leave_out(doubt.first, doubt.second, found);
    return out;
  });
}

void Saver::judge_images(const std::map<uint32_t, std::string>& unreadable, SaveReport& report) {
  const graph::GraphTables& tables = snapshotter_.tables();
  const graph::GraphView view = tables.view();
  for (uint32_t graph = 0; graph < tables.graphs.size(); ++graph) {
    if ((tables.graphs[graph].flags & archive::kGraphIsChild) != 0) continue;
    std::set<uint32_t> images;
    walk_kernels(view, graph,
                 [&](const archive::KernelRecord& kernel) { images.insert(view.functions[kernel.function].image); });
    for (const auto& [image, why] : unreadable) {
      if (images.contains(image)) leave_out(graph, why, report);
    }
  }
}

Result<std::vector<Doubt>> Saver::examine() {
  if (found_) return Error{ErrorKind::state, 0, "this SAVE was examined already"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  capture_inputs_.keep_within(mutable_memory(tensors_.tensors()));
  auto found = std::make_unique<Examination>();
  SaveReport& report = found->report;
  Stopwatch watch;
  report.milliseconds["snapshot"] = snapshot_ms_;
  graph::GraphTables& tables = snapshotter_.tables();
  FOUNDRY_ASSIGN(const ModuleGlobalsReport globals,
                 read_module_globals(process_, capability_, snapshotter_.image_ids(), tables));
  report.warnings.insert(report.warnings.end(), globals.notes.begin(), globals.notes.end());
  judge_images(globals.unreadable, report);
  report.milliseconds["globals"] = watch.lap();

  FOUNDRY_ASSIGN(found->memory, read_memory_state(process_, device_, blocks_, anchors()));
  graph::AuditInput input;
  input.graphs = tables.view();
  input.memory = &found->memory.map;
  input.host_ranges = snapshotter_.host_ranges();
  input.origins = &origins_;
  FOUNDRY_ASSIGN(found->audit, graph::audit(process_.driver(), input));
  tables.pointers = found->audit.pointers;
  judge_outputs(found->memory, report);
  judge(*found);
  report.milliseconds["audit"] = watch.lap();
  std::vector<Doubt> doubts;
  for (const auto& [graph, findings] : found->doubts) {
    doubts.push_back({graph, std::string(tables.view().text(tables.graphs[graph].name))});
  }
  found_ = std::move(found);
  return doubts;
}

Status Saver::settle(uint32_t graph, const std::string& refusal) {
  if (!found_ || !found_->doubts.contains(graph)) {
    return Error{ErrorKind::invalid, 0, format("graph %u is not in doubt", graph)};
  }
  graph::GraphTables& tables = snapshotter_.tables();
  const std::vector<size_t> findings = found_->doubts.extract(graph).mapped();
  if (refusal.empty()) {
    for (const size_t index : findings) {
      tables.pointers[found_->audit.findings[index].pointer].pointer_class =
          static_cast<uint32_t>(archive::PointerClass::padding);
    }
  } else {
    leave_out(graph, findings, *found_);
    leave_out(graph, "These words are not known to be padding: " + refusal, found_->report);
  }
  return success();
}

void Saver::judge_outputs(const MemoryState& memory, SaveReport& report) {
  for (const auto& [graph, outputs] : outputs_) {
    for (const uint32_t index : outputs.tensors) {
      const TensorInfo& tensor = tensors_.tensors()[index];
      if (tensor.bytes == 0 || tensor.anchor) continue;
      const uint32_t range = memory.map.range_of(tensor.address);
      if (range == archive::kNone || memory.map.is_materialized(range)) continue;
      std::string why = format(
          "an output at %s lies in a phase's memory, but the tensor is not registered; register it, so "
          "that LOAD can compare where it is",
          hex(tensor.address).c_str());
      leave_out(graph, std::move(why), report);
      break;
    }
  }
}

Result<MemoryScanner*> Saver::scanner() {
  if (!scanner_) {
    FOUNDRY_ASSIGN(scanner_, MemoryScanner::create(process_.driver(), DeviceCode::of(process_.abi())));
    if (!scanner_->note().empty()) found_->report.warnings.push_back(scanner_->note());
  }
  return scanner_.get();
}

Result<graph::ReachResult> Saver::follow(const MemoryState& memory, const std::set<uint32_t>& roots) {
  FOUNDRY_ASSIGN(MemoryScanner * scanner, this->scanner());
  // Graph-private memory has no content before a replay: it is reached, but nothing is followed from it.
  std::vector<uint32_t> with_content;
  std::copy_if(roots.begin(), roots.end(), std::back_inserter(with_content),
               [&](uint32_t range) { return memory.has_content(memory.map.ranges()[range]); });
  std::vector<device::AddressRange> windows;
  for (const foundry_zone_info& zone : memory.map.zones()) {
    windows.push_back({zone.base, zone.base + zone.size + 1});  // with the address just behind it
  }
  const graph::ScanMemory scan = [&](uint64_t begin, uint64_t end, const graph::FoundWord& found) -> Status {
    const uint32_t range = memory.map.range_of(begin);
    if (range == archive::kNone || !memory.has_content(memory.map.ranges()[range])) return success();
    FOUNDRY_ASSIGN(const std::vector<device::PointerHit> hits, scanner->pointers(begin, end - begin, windows));
    for (const device::PointerHit& hit : hits) found(hit.address, hit.value);
    return success();
  };
  return graph::reach(memory.map, with_content, scan);
}

Result<std::vector<uint32_t>> Saver::reached(const MemoryState& memory, const graph::AuditResult& audit,
                                             SaveReport& report) {
  const graph::GraphTables& tables = snapshotter_.tables();
  std::set<uint32_t> roots;
  const auto left_out = [&](uint32_t graph) { return (tables.graphs[graph].flags & archive::kGraphLeftOut) != 0; };
  for (const graph::Root& root : audit.roots) {
    if (!left_out(root.graph)) roots.insert(root.range);
  }
  const auto add_root = [&](const TensorInfo& tensor, const std::string& what) -> Status {
    if (tensor.bytes == 0 || tensor.anchor) return success();
    const uint32_t range = memory.map.range_of(tensor.address);
    if (range == archive::kNone) {
      return Error{ErrorKind::unsupported, 0,
                   format("%s at %s lies in no zone; allocate it within a phase of the session or inside the captured "
                          "function",
                          what.c_str(), hex(tensor.address).c_str())};
    }
    if (memory.map.is_materialized(range)) roots.insert(range);
    return success();
  };
  for (const auto& [graph, outputs] : outputs_) {
    if (left_out(graph)) continue;
    const std::string what =
        format("an output of graph '%s'", std::string(tables.view().text(tables.graphs[graph].name)).c_str());
    for (const uint32_t index : outputs.tensors) FOUNDRY_TRY(add_root(tensors_.tensors()[index], what));
  }
  for (const TensorInfo& tensor : tensors_.tensors()) {
    if ((tensor.flags & archive::kExport) != 0)
      FOUNDRY_TRY(add_root(tensor, format("export '%s'", tensor.name.c_str())));
  }

  FOUNDRY_ASSIGN(const graph::ReachResult reach, follow(memory, roots));
  roots.insert(reach.ranges.begin(), reach.ranges.end());
  for (const graph::StoredPointer& pointer : reach.rebuilt) {
    if (pointer.anchor != archive::kNone) continue;
    report.warnings.push_back(
        format("a word at %s, which graphs reach, points to %s in a rebuilt zone where no registered "
               "tensor lies; register the tensor it means",
               hex(pointer.holder).c_str(), hex(pointer.value).c_str()));
  }
  return std::vector<uint32_t>(roots.begin(), roots.end());
}

Result<SaveReport> Saver::write(archive::Publication& staging, uint32_t rank, bool strict, bool compact) {
  if (written_) return Error{ErrorKind::state, 0, "this SAVE was written already"};
  written_ = true;
  if (!found_) FOUNDRY_TRY(examine());
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);

  const MemoryState& memory = found_->memory;
  for (const auto& [graph, findings] : std::exchange(found_->doubts, {})) leave_out(graph, findings, *found_);
  FOUNDRY_TRY(scanner());
  SaveReport report = found_->report;
  Stopwatch watch;
  graph::GraphTables& tables = snapshotter_.tables();
  for (const archive::GraphRecord& graph : tables.graphs) {
    if (!strict || (graph.flags & archive::kGraphLeftOut) == 0) continue;
    return Error{ErrorKind::unsupported, 0, report.left_out.at(std::string(tables.view().text(graph.name))).front()};
  }
  FOUNDRY_ASSIGN(const ImageStoreReport images,
                 store_images(staging.directory(), process_, capability_, snapshotter_.image_ids(), tables));
  report.images = images.images;
  report.image_bytes = images.bytes;
  report.warnings.insert(report.warnings.end(), images.notes.begin(), images.notes.end());
  report.milliseconds["images"] = watch.lap();
  FOUNDRY_ASSIGN(const std::vector<uint32_t> reached_ranges, reached(memory, found_->audit, report));
  report.milliseconds["reach"] = watch.lap();

  const std::string folder = format("rank_%u", rank);
  FOUNDRY_ASSIGN(const archive::FileDescriptor rank_directory,
                 archive::make_directory_below(staging.directory(), folder));
  FOUNDRY_TRY(write_graphs(staging.directory(), folder + "/graphs.fdry", compact, report));
  report.milliseconds["write graphs"] = watch.lap();
  FOUNDRY_TRY(write_memory(staging.directory(), folder + "/memory.fdry", memory, reached_ranges, report));
  report.milliseconds["write memory"] = watch.lap();
  FOUNDRY_TRY(write_journal(staging.directory(), folder + "/journal.fdry", memory, report));
  report.milliseconds["write journal"] = watch.lap();
  report.bytes_by_file["images"] = report.image_bytes;
  report.graphs = summarize(tables.view());
  scanner_.reset();
  return report;
}

}  // namespace foundry::session
