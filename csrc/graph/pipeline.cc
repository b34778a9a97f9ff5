#include "csrc/graph/pipeline.h"

#include <algorithm>
#include <exception>

#include "csrc/base/text.h"

namespace foundry::graph {
namespace {

class ImageOrder {
 public:
  explicit ImageOrder(const GraphView& view)
      : view_(view), listed_(view.images.size(), false), visited_(view.graphs.size(), false) {}

  void add_graph(uint32_t graph) {
    visited_[graph] = true;
    const archive::GraphRecord& record = view_.graphs[graph];
    for (const archive::NodeRecord& node : view_.nodes.subspan(record.first_node, record.node_count)) {
      if (node.type == CU_GRAPH_NODE_TYPE_GRAPH) add_graph(node.payload);
      if (node.type == CU_GRAPH_NODE_TYPE_KERNEL)
        add_image(view_.functions[view_.kernels[node.payload].function].image);
    }
  }
  void add_images_of_arguments() {
    for (const archive::PointerRecord& pointer : view_.pointers) {
      const bool global = pointer.pointer_class == static_cast<uint32_t>(archive::PointerClass::module_global);
      if (global && visited_[pointer.graph]) add_image(view_.module_globals[pointer.target].image);
    }
  }
  std::vector<uint32_t> take() { return std::move(images_); }

 private:
  void add_image(uint32_t image) {
    if (!listed_[image]) images_.push_back(image);
    listed_[image] = true;
  }

  const GraphView& view_;
  std::vector<bool> listed_, visited_;
  std::vector<uint32_t> images_;
};

}  // namespace

std::vector<uint32_t> images_of(const GraphView& view, std::span<const uint32_t> graphs) {
  ImageOrder order(view);
  for (const uint32_t graph : graphs) order.add_graph(graph);
  order.add_images_of_arguments();
  return order.take();
}

Pipeline::Pipeline(const driver::Driver& driver, const GraphView& view, Libraries& libraries,
                   const GraphBuilder& builder, const RestoreOptions& options)
    : driver_(driver),
      view_(view),
      libraries_(libraries),
      builder_(builder),
      options_(options),
      slots_(view.graphs.size()) {
  for (const uint32_t graph : options.order) {
    slots_[graph].phase = Phase::queued;
    to_build_.push_back(graph);
  }
  open_ = static_cast<uint32_t>(to_build_.size());
  to_instantiate_.reserve(queue_limit());
}

uint32_t Pipeline::queue_limit() const { return std::max(1u, options_.queue_limit); }

Pipeline::~Pipeline() {
  cancel();
  const driver::ScopedContext current(driver_, options_.context);
  for (Slot& slot : slots_) {
    if (const CUgraphExec exec = slot.exec.load(); exec != nullptr) driver_.cuGraphExecDestroy(exec);
  }
}

void Pipeline::start_threads() {
  const std::lock_guard lock(joining_);
  uint32_t loaders = options_.image_threads;
  if (loaders == 0) loaders = std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
  for (uint32_t i = 0; i < loaders; ++i) {
    threads_.emplace_back([this] {
      run_thread([this] {
        while (libraries_.load_next()) {
        }
      });
    });
  }
  for (uint32_t i = 0; i < std::max(1u, options_.build_threads); ++i) {
    threads_.emplace_back([this] { run_thread([this] { build_graphs(); }); });
  }
  threads_.emplace_back([this] { run_thread([this] { instantiate_graphs(); }); });
}

void Pipeline::run_thread(const std::function<void()>& body) {
  try {
    const driver::ScopedContext current(driver_, options_.context);
    if (!current.status().ok()) {
      stop(current.status().error());
      return;
    }
    const driver::RelaxedCaptureMode relaxed(driver_);
    body();
  } catch (const std::exception& failure) {
    stop(Error{ErrorKind::out_of_memory, 0, format("a restoring thread ended: %s", failure.what())});
  }
}

std::optional<uint32_t> Pipeline::next_to_build() {
  std::unique_lock lock(mutex_);
  const auto room = [&] { return to_instantiate_.size() + building_ < queue_limit(); };
  work_.wait(lock, [&] { return stopped_ || to_build_.empty() || room(); });
  if (stopped_ || to_build_.empty()) return std::nullopt;
  const uint32_t graph = to_build_.front();
  to_build_.pop_front();
  slots_[graph].phase = Phase::building;
  ++building_;
  return graph;
}

void Pipeline::build_graphs() {
  while (const std::optional<uint32_t> graph = next_to_build()) {
    Stopwatch watch;
    LookupTime lookup;
    Result<CUgraph> built = static_cast<CUgraph>(nullptr);
    try {
      built = builder_.build(*graph, lookup);
    } catch (const std::exception& failure) {
      built = Error{ErrorKind::out_of_memory, 0, format("graph %u was not built: %s", *graph, failure.what())};
    }
    const std::lock_guard lock(mutex_);
    stats_.build_ms += watch.lap() - lookup.waiting_ms - lookup.kernels_ms;
    stats_.kernels_ms += lookup.kernels_ms;
    stats_.functions += lookup.functions;
    --building_;
    if (built.ok() && stopped_) {
      driver_.cuGraphDestroy(built.value());
      built = *stopped_;
    }
    if (built.ok()) {
      const auto place = slots_[*graph].urgent ? to_instantiate_.begin() : to_instantiate_.end();
      to_instantiate_.insert(place, {*graph, built.value()});
    } else {
      finish(*graph, std::move(built).error());
    }
    work_.notify_all();
  }
}

std::optional<Pipeline::Built> Pipeline::next_to_instantiate() {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] { return stopped_ || !to_instantiate_.empty() || (to_build_.empty() && building_ == 0); });
  if (stopped_ || to_instantiate_.empty()) return std::nullopt;
  const Built built = to_instantiate_.front();
  to_instantiate_.erase(to_instantiate_.begin());
  work_.notify_all();
  return built;
}

void Pipeline::instantiate_graphs() {
  while (const std::optional<Built> built = next_to_instantiate()) {
    Stopwatch watch;
    CUgraphExec exec = nullptr;
    const CUresult code = driver_.cuGraphInstantiateWithFlags(&exec, built->handle, options_.instantiate_flags);
    driver_.cuGraphDestroy(built->handle);
    Result<CUgraphExec> result = exec;
    if (code != CUDA_SUCCESS) {
      result = driver_.error(code, "cuGraphInstantiateWithFlags")
                   .within("graph " + std::string(view_.text(view_.graphs[built->graph].name)));
    }
    const std::lock_guard lock(mutex_);
    stats_.instantiate_ms += watch.lap();
    finish(built->graph, std::move(result));
  }
}

double Pipeline::ms_since_start() const {
  Stopwatch watch = start_;
  return watch.lap();
}

void Pipeline::finish(uint32_t graph, Result<CUgraphExec> exec) {
  Slot& slot = slots_[graph];
  if (exec.ok()) {
    slot.phase = Phase::ready;
    slot.exec.store(exec.value(), std::memory_order_release);
    if (stats_.graphs_ready++ == 0) stats_.first_ready_ms = ms_since_start();
    stats_.nodes += view_.graphs[graph].node_count;
    stats_.edges += view_.graphs[graph].edge_count;
  } else {
    slot.phase = Phase::failed;
    slot.error = std::move(exec).error();
    ++stats_.graphs_failed;
  }
  if (--open_ == 0) stats_.total_ms = ms_since_start();
  done_.notify_all();
}

void Pipeline::stop(const Error& reason) {
  libraries_.cancel();
  const std::lock_guard lock(mutex_);
  if (!stopped_) {
    stopped_ = reason;
    for (const uint32_t graph : to_build_) finish(graph, reason);
    for (const Built& built : to_instantiate_) {
      driver_.cuGraphDestroy(built.handle);
      finish(built.graph, reason);
    }
    to_build_.clear();
    to_instantiate_.clear();
  }
  work_.notify_all();
}

void Pipeline::cancel() {
  const std::lock_guard lock(joining_);
  const driver::ScopedContext current(driver_, options_.context);
  stop(Error{ErrorKind::state, 0, "the restore was cancelled before the graph was ready"});
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Error Pipeline::unlisted(uint32_t graph) const {
  return Error{ErrorKind::invalid, 0, format("graph %u is none of those that are restored", graph)};
}

void Pipeline::hurry(uint32_t graph) {
  Slot& slot = slots_[graph];
  if (slot.urgent) return;
  slot.urgent = true;
  if (slot.phase == Phase::queued) {
    std::stable_partition(to_build_.begin(), to_build_.end(), [&](uint32_t queued) { return queued == graph; });
    libraries_.hurry(images_of(view_, std::span(&graph, 1)));
  }
  std::stable_partition(to_instantiate_.begin(), to_instantiate_.end(),
                        [&](const Built& built) { return built.graph == graph; });
}

void Pipeline::prefer(uint32_t graph) {
  const std::lock_guard lock(mutex_);
  if (graph < slots_.size() && slots_[graph].phase != Phase::unlisted) hurry(graph);
}

CUgraphExec Pipeline::ready(uint32_t graph) const {
  return graph < slots_.size() ? slots_[graph].exec.load(std::memory_order_acquire) : nullptr;
}

Result<CUgraphExec> Pipeline::wait(uint32_t graph) {
  if (const CUgraphExec exec = ready(graph); exec != nullptr) return exec;
  if (graph >= slots_.size()) return unlisted(graph);
  std::unique_lock lock(mutex_);
  const Slot& slot = slots_[graph];
  if (slot.phase == Phase::unlisted) return unlisted(graph);
  hurry(graph);
  done_.wait(lock, [&] { return slot.phase == Phase::ready || slot.phase == Phase::failed; });
  if (slot.phase == Phase::failed) return slot.error;
  return slot.exec.load();
}

Status Pipeline::wait_all() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return open_ == 0; });
  for (const uint32_t graph : options_.order) {
    if (slots_[graph].phase == Phase::failed) return slots_[graph].error;
  }
  return success();
}

RestoreStats Pipeline::stats() const {
  const Libraries::Stats libraries = libraries_.stats();
  const std::lock_guard lock(mutex_);
  RestoreStats stats = stats_;
  stats.images_ms = libraries.load_ms;
  stats.globals_ms = libraries.globals_ms;
  stats.image_bytes = libraries.bytes;
  stats.images = libraries.images;
  return stats;
}

}  // namespace foundry::graph
