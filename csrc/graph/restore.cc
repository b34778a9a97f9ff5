#include "csrc/graph/restore.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <system_error>

#include "csrc/base/text.h"
#include "csrc/graph/equal_graphs.h"
#include "csrc/graph/graph_builder.h"
#include "csrc/graph/kernels.h"
#include "csrc/graph/libraries.h"
#include "csrc/graph/pipeline.h"

namespace foundry::graph {
namespace {

Status check(const GraphView& view, const RestoreOptions& options) {
  if (options.context == nullptr) return Error{ErrorKind::invalid, 0, "restoring graphs needs a CUDA context"};
  std::vector<bool> listed(view.graphs.size(), false);
  for (const uint32_t graph : options.order) {
    const char* problem = nullptr;
    if (graph >= view.graphs.size()) {
      problem = "the archive has no graph of that index";
    } else if ((view.graphs[graph].flags & archive::kGraphIsChild) != 0) {
      problem = "it is a child graph";
    } else if ((view.graphs[graph].flags & archive::kGraphLeftOut) != 0) {
      problem = "SAVE left it out, because it could not vouch for all of its pointers";
    } else if (listed[graph]) {
      problem = "it is listed twice";
    }
    if (problem != nullptr)
      return Error{ErrorKind::invalid, 0, format("graph %u cannot be restored: %s", graph, problem)};
    listed[graph] = true;
  }
  for (const uint32_t graph : options.held) {
    if (graph >= listed.size() || !listed[graph]) {
      return Error{ErrorKind::invalid, 0, format("graph %u cannot be held back: it is not restored", graph)};
    }
  }
  return success();
}

// Of `graphs` those that have an exec of their own.
std::vector<uint32_t> firsts(std::vector<uint32_t> graphs, const std::vector<uint32_t>& first) {
  std::erase_if(graphs, [&](uint32_t graph) { return first[graph] != graph; });
  return graphs;
}

}  // namespace

struct Restorer::State {
  State(const driver::Driver& used_driver, const GraphView& used_view, ImageProvider provider, RestoreOptions given)
      : driver(used_driver),
        view(used_view),
        first(given.tuning.share_execs ? first_equals(view, given.order) : std::vector<uint32_t>()),
        shared(first.size(), false),
        options(without_equals(std::move(given), first)),
        libraries(driver, view, std::move(provider), images_of(view, options.order)),
        kernels(driver, view, libraries, options.device) {
    for (uint32_t graph = 0; graph < first.size(); ++graph) {
      if (first[graph] != graph) shared[first[graph]] = true;
    }
    for (const archive::HostRangeRecord& range : view.host_ranges) {
      host_shifts.emplace_back(Error{ErrorKind::mismatch, 0,
                                     format("host memory '%s' was not registered; register_host() it as on SAVE",
                                            std::string(view.text(range.name)).c_str())});
    }
  }

  static RestoreOptions without_equals(RestoreOptions options, const std::vector<uint32_t>& first) {
    if (first.empty()) return options;
    options.order = firsts(std::move(options.order), first);
    options.held = firsts(std::move(options.held), first);
    return options;
  }

  bool is_shared(uint32_t graph) const { return graph < shared.size() && shared[graph]; }

  // The graph whose exec this one uses.
  uint32_t stands_for(uint32_t graph) const { return graph < first.size() ? first[graph] : graph; }

  ~State() {
    const driver::ScopedContext current(driver, options.context);
    pipeline.reset();
    for (const CUevent event : owned_events) driver.cuEventDestroy(event);
    libraries.unload();
  }

  // Events of one identity are one CUevent.
  Status create_events() {
    std::vector<std::pair<uint32_t, CUevent>> by_identity;
    for (const archive::EventRecord& record : view.graph_events) {
      const auto known = std::find_if(by_identity.begin(), by_identity.end(),
                                      [&](const auto& entry) { return entry.first == record.identity; });
      if (known != by_identity.end()) {
        events.push_back(known->second);
        continue;
      }
      CUevent event = nullptr;
      FOUNDRY_CU(driver, cuEventCreate, &event, record.flags);
      owned_events.push_back(event);
      by_identity.emplace_back(record.identity, event);
      events.push_back(event);
    }
    return success();
  }

  const driver::Driver& driver;
  const GraphView view;
  const std::vector<uint32_t> first;  // by graph; empty: each has an exec of its own
  std::vector<bool> shared;           // by graph: others use its exec, too
  // A program may launch different graphs from different threads at once; calls for one exec must not overlap.
  std::mutex shared_launch;
  const RestoreOptions options;
  Libraries libraries;
  Kernels kernels;
  std::vector<CUevent> events;        // by index into view.graph_events
  std::vector<CUevent> owned_events;  // each once
  std::vector<Result<int64_t>> host_shifts;
  std::unique_ptr<GraphBuilder> builder;
  std::unique_ptr<Pipeline> pipeline;
};

Restorer::Restorer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Restorer::~Restorer() = default;

Result<std::unique_ptr<Restorer>> Restorer::start(const driver::Driver& driver, const GraphView& view,
                                                  ImageProvider images, RestoreOptions options) {
  FOUNDRY_TRY(check(view, options));
  auto state = std::make_unique<State>(driver, view, std::move(images), std::move(options));
  {
    const driver::ScopedContext current(driver, state->options.context);
    FOUNDRY_TRY(current.status());
    FOUNDRY_TRY(state->create_events());
  }
  state->builder = std::make_unique<GraphBuilder>(
      GraphBuilder::Context{driver, state->view, state->libraries, state->kernels, state->options.context,
                            state->events, state->options.relocations, state->host_shifts});
  state->pipeline = std::make_unique<Pipeline>(driver, state->view, state->libraries, state->kernels, *state->builder,
                                               state->options);
  try {
    state->pipeline->start_threads();
  } catch (const std::system_error& failure) {
    return Error{ErrorKind::out_of_memory, failure.code().value(),
                 format("no threads to restore graphs with: %s", failure.what())};
  }
  return std::unique_ptr<Restorer>(new Restorer(std::move(state)));
}

Result<CUgraphExec> Restorer::wait(uint32_t graph) { return state_->pipeline->wait(state_->stands_for(graph)); }
void Restorer::place_host(uint32_t range, Result<int64_t> shift) { state_->host_shifts.at(range) = std::move(shift); }
void Restorer::release() { state_->pipeline->release(); }
void Restorer::prefer(uint32_t graph) { state_->pipeline->prefer(state_->stands_for(graph)); }
CUgraphExec Restorer::ready(uint32_t graph) const { return state_->pipeline->ready(state_->stands_for(graph)); }
Status Restorer::wait_all() { return state_->pipeline->wait_all(); }
void Restorer::cancel() { state_->pipeline->cancel(); }
RestoreStats Restorer::stats() const { return state_->pipeline->stats(); }

Status Restorer::launch(uint32_t asked, CUstream stream) {
  const uint32_t graph = state_->stands_for(asked);
  FOUNDRY_ASSIGN(const CUgraphExec exec, state_->pipeline->acquire(graph));
  std::unique_lock shared(state_->shared_launch, std::defer_lock);
  if (state_->is_shared(graph)) shared.lock();
  const CUresult code = state_->driver.cuGraphLaunch(exec, stream);
  if (shared.owns_lock()) shared.unlock();
  state_->pipeline->give_back(graph);
  if (code == CUDA_SUCCESS) return success();
  return state_->driver.error(code, "cuGraphLaunch")
      .within("graph " + std::string(state_->view.text(state_->view.graphs[asked].name)));
}

Result<CUevent> Restorer::event(std::string_view name) const {
  for (size_t i = 0; i < state_->view.graph_events.size() && !name.empty(); ++i) {
    if (state_->view.text(state_->view.graph_events[i].name) == name) return state_->events[i];
  }
  return Error{ErrorKind::invalid, 0,
               format("no graph of the archive uses an event named \"%s\"", std::string(name).c_str())};
}

ExecBytes exec_bytes(const GraphView& view, uint32_t graph) {
  constexpr uint64_t kDevicePerNode = 2900, kHostPerNode = 7800;
  const archive::GraphRecord& record = view.graphs[graph];
  ExecBytes bytes{record.node_count * kDevicePerNode, record.node_count * kHostPerNode};
  for (const archive::NodeRecord& node : view.nodes.subspan(record.first_node, record.node_count)) {
    if (node.type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
    const ExecBytes child = exec_bytes(view, node.payload);
    bytes.device += child.device;
    bytes.host += child.host;
  }
  return bytes;
}

namespace {

bool holds(std::span<const MappedRange> mapped, uint64_t address, uint64_t bytes) {
  const auto next = std::upper_bound(mapped.begin(), mapped.end(), address,
                                     [](uint64_t wanted, const MappedRange& range) { return wanted < range.address; });
  if (next == mapped.begin()) return false;
  const MappedRange& range = *std::prev(next);
  const uint64_t offset = address - range.address;
  return offset <= range.bytes && bytes <= range.bytes - offset;
}

// Whether all that a copy or a fill names lies there. Only rows are looked at; other shapes are rare.
bool is_within(const GraphView& view, const archive::NodeRecord& node, std::span<const MappedRange> mapped) {
  if (node.type == CU_GRAPH_NODE_TYPE_MEMSET) {
    const archive::MemsetRecord& fill = view.memsets[node.payload];
    return fill.height == 1 && holds(mapped, fill.destination, fill.width * fill.element_bytes);
  }
  const archive::MemcpyRecord& copy = view.memcpys[node.payload];
  const bool row = copy.height == 1 && copy.depth == 1 && copy.source_y == 0 && copy.source_z == 0 &&
                   copy.destination_y == 0 && copy.destination_z == 0;
  return row && holds(mapped, copy.source + copy.source_x, copy.width_bytes) &&
         holds(mapped, copy.destination + copy.destination_x, copy.width_bytes);
}

}  // namespace

std::vector<uint32_t> graphs_with_copies(const GraphView& view, std::span<const uint32_t> order,
                                         std::span<const MappedRange> mapped) {
  enum class Answer : uint8_t { unknown, no, yes };
  std::vector<Answer> answers(view.graphs.size(), Answer::unknown);
  for (const archive::PointerRecord& pointer : view.pointers) {
    if (static_cast<archive::PointerClass>(pointer.pointer_class) == archive::PointerClass::host) {
      answers[pointer.graph] = Answer::yes;
    }
  }
  const auto has_copies = [&](const auto& self, uint32_t graph) -> bool {
    if (answers[graph] != Answer::unknown) return answers[graph] == Answer::yes;
    const archive::GraphRecord& record = view.graphs[graph];
    const auto nodes = view.nodes.subspan(record.first_node, record.node_count);
    const bool found = std::any_of(nodes.begin(), nodes.end(), [&](const archive::NodeRecord& node) {
      const bool copies = node.type == CU_GRAPH_NODE_TYPE_MEMCPY || node.type == CU_GRAPH_NODE_TYPE_MEMSET;
      return copies ? !is_within(view, node, mapped)
                    : node.type == CU_GRAPH_NODE_TYPE_GRAPH && self(self, node.payload);
    });
    answers[graph] = found ? Answer::yes : Answer::no;
    return found;
  };
  std::vector<uint32_t> found;
  for (const uint32_t graph : order) {
    if (has_copies(has_copies, graph)) found.push_back(graph);
  }
  return found;
}

Result<uint64_t> Restorer::module_global(uint32_t index) {
  if (index >= state_->view.module_globals.size()) {
    return Error{ErrorKind::invalid, 0, format("the archive has no module variable %u", index)};
  }
  return state_->libraries.global(index);
}

}  // namespace foundry::graph
