#include "csrc/graph/restore.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "csrc/base/text.h"
#include "csrc/graph/graph_builder.h"
#include "csrc/graph/kernels.h"
#include "csrc/graph/libraries.h"
#include "csrc/graph/pipeline.h"

namespace foundry::graph {
namespace {

// Images in the order in which graphs need them; those whose module globals are arguments of a graph as well.
std::vector<uint32_t> images_by_first_use(const GraphView& view, std::span<const uint32_t> graphs) {
  std::vector<bool> seen(view.images.size(), false);
  std::vector<uint32_t> images;
  for (const uint32_t graph : graphs) append_images_of(view, graph, seen, images);
  for (const archive::PointerRecord& pointer : view.pointers) {
    if (pointer.pointer_class != static_cast<uint32_t>(archive::PointerClass::module_global)) continue;
    const uint32_t image = view.module_globals[pointer.target].image;
    if (!seen[image]) images.push_back(image);
    seen[image] = true;
  }
  return images;
}

Status check(const GraphView& view, const RestoreOptions& options) {
  if (options.context == nullptr) return Error{ErrorKind::invalid, 0, "restoring graphs needs a CUDA context"};
  std::vector<bool> listed(view.graphs.size(), false);
  for (const uint32_t graph : options.order) {
    if (graph >= view.graphs.size() || (view.graphs[graph].flags & archive::kGraphIsChild) != 0 || listed[graph]) {
      return Error{ErrorKind::invalid, 0,
                   format("graph %u cannot be restored: %s", graph,
                          graph >= view.graphs.size() ? "the archive has no graph of that index"
                          : listed[graph]             ? "it is listed twice"
                                                      : "it is a child graph")};
    }
    listed[graph] = true;
  }
  return success();
}

}  // namespace

struct Restorer::State {
  State(const driver::Driver& used_driver, const GraphView& used_view, ImageProvider provider, RestoreOptions given)
      : driver(used_driver),
        view(used_view),
        options(std::move(given)),
        libraries(driver, view, std::move(provider), images_by_first_use(view, options.order)),
        kernels(driver, view, libraries, options.device) {}

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
  const RestoreOptions options;
  Libraries libraries;
  Kernels kernels;
  std::vector<CUevent> events;        // by index into view.graph_events
  std::vector<CUevent> owned_events;  // each once
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
  state->builder = std::make_unique<GraphBuilder>(GraphBuilder::Context{
      driver, state->view, state->libraries, state->kernels, state->options.context, state->events,
      state->options.relocations});
  state->pipeline =
      std::make_unique<Pipeline>(driver, state->view, state->libraries, *state->builder, state->options);
  try {
    state->pipeline->start_threads();
  } catch (const std::system_error& failure) {
    return Error{ErrorKind::io, failure.code().value(), format("no threads to restore graphs with: %s", failure.what())};
  }
  return std::unique_ptr<Restorer>(new Restorer(std::move(state)));
}

Result<CUgraphExec> Restorer::wait(uint32_t graph) { return state_->pipeline->wait(graph); }
void Restorer::prefer(uint32_t graph) { state_->pipeline->prefer(graph); }
CUgraphExec Restorer::ready(uint32_t graph) const { return state_->pipeline->ready(graph); }
Status Restorer::wait_all() { return state_->pipeline->wait_all(); }
void Restorer::cancel() { state_->pipeline->cancel(); }
RestoreStats Restorer::stats() const { return state_->pipeline->stats(); }

Status Restorer::launch(uint32_t graph, CUstream stream) {
  FOUNDRY_ASSIGN(const CUgraphExec exec, wait(graph));
  const CUresult code = state_->driver.cuGraphLaunch(exec, stream);
  if (code == CUDA_SUCCESS) return success();
  return state_->driver.error(code, "cuGraphLaunch")
      .within("graph " + std::string(state_->view.text(state_->view.graphs[graph].name)));
}

Result<CUevent> Restorer::event(std::string_view name) const {
  for (size_t i = 0; i < state_->view.graph_events.size() && !name.empty(); ++i) {
    if (state_->view.text(state_->view.graph_events[i].name) == name) return state_->events[i];
  }
  return Error{ErrorKind::invalid, 0, format("no graph of the archive uses an event named \"%s\"", std::string(name).c_str())};
}

Result<uint64_t> Restorer::module_global(uint32_t index) {
  if (index >= state_->view.module_globals.size()) {
    return Error{ErrorKind::invalid, 0, format("the archive has no module variable %u", index)};
  }
  return state_->libraries.global(index);
}

}  // namespace foundry::graph
