#include "csrc/graph/pipeline.h"

#include <sys/resource.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/base/trace.h"

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

// What the calling thread spent in the system since it asked last.
double system_ms() {
  thread_local double asked = 0;
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  const double now = static_cast<double>(used.ru_stime.tv_sec) * 1e3 + static_cast<double>(used.ru_stime.tv_usec) / 1e3;
  return now - std::exchange(asked, now);
}

}  // namespace

std::vector<uint32_t> images_of(const GraphView& view, std::span<const uint32_t> graphs) {
  ImageOrder order(view);
  for (const uint32_t graph : graphs) order.add_graph(graph);
  order.add_images_of_arguments();
  return order.take();
}

HeapRoom heap_room(const GraphView& view, const RestoreOptions& options, uint32_t loaders, uint32_t builders) {
  constexpr uint64_t kLoaderMost = uint64_t{30} << 20, kBuilderMost = uint64_t{512} << 20;
  constexpr uint64_t kPerImageByte = 48;  // 5.1 MB of images in 8 heaps of 30 MB each is what was measured
  uint64_t images = 0;
  for (const uint32_t image : images_of(view, options.order)) images += std::min(view.images[image].bytes, kLoaderMost);
  ExecBytes execs;
  for (const uint32_t graph : options.order) {
    const ExecBytes one = exec_bytes(view, graph);
    execs.device += one.device;
    execs.host += one.host;
  }
  auto host = static_cast<double>(execs.host);
  if (options.exec_budget != 0 && options.exec_budget < execs.device) {
    host *= static_cast<double>(options.exec_budget) / static_cast<double>(execs.device);
  }
  host += host / 4;  // what building takes beside the execs, and threads that do more than their share
  return {std::min(images * kPerImageByte / loaders, kLoaderMost),
          std::min(static_cast<uint64_t>(host) / builders, kBuilderMost)};
}

Pipeline::Pipeline(const driver::Driver& driver, const GraphView& view, Libraries& libraries, Kernels& kernels,
                   const GraphBuilder& builder, const RestoreOptions& options)
    : driver_(driver),
      view_(view),
      libraries_(libraries),
      kernels_(kernels),
      builder_(builder),
      options_(options),
      slots_(view.graphs.size()),
      held_(options.held) {
  for (const uint32_t graph : held_) slots_[graph].phase = Phase::held;
  for (uint32_t place = 0; place < options.order.size(); ++place) {
    Slot& slot = slots_[options.order[place]];
    slot.place = place;
    if (slot.phase == Phase::held) continue;
    slot.phase = Phase::queued;
    to_build_.push_back(options.order[place]);
  }
  open_ = static_cast<uint32_t>(options.order.size());
}

Pipeline::~Pipeline() {
  cancel();
  const driver::ScopedContext current(driver_, options_.context);
  for (Slot& slot : slots_) {
    if (const CUgraphExec exec = slot.exec.load(); exec != nullptr) driver_.cuGraphExecDestroy(exec);
  }
}

void Pipeline::start_threads() {
  const std::lock_guard lock(joining_);
  const RestoreTuning& tuning = options_.tuning;
  const uint32_t processors = std::max(1u, std::thread::hardware_concurrency());
  loading_ = tuning.image_threads != 0 ? tuning.image_threads : std::min(processors, 8u);
  building_ = tuning.graph_threads != 0 ? tuning.graph_threads : std::min(processors, 2u);
  if (tuning.grow_heaps) room_ = heap_room(view_, options_, loading_, building_);
  const auto add = [&](const char* role, uint32_t count, void (Pipeline::*body)()) {
    for (uint32_t i = 0; i < count; ++i) {
      threads_.emplace_back(
          [this, body, name = format("%s %u", role, i)] { run_thread(name, [this, body] { (this->*body)(); }); });
    }
  };
  add("images", loading_, &Pipeline::load_images);
  add("graphs", building_, &Pipeline::restore_graphs);
}

void Pipeline::run_thread(const std::string& name, const std::function<void()>& body) {
  trace::name_thread(name);
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

HeapWarmup Pipeline::grow_heap(uint64_t bytes) {
  trace::Span span("grow heap");
  HeapWarmup grown(bytes);
  span.bytes(grown.bytes());
  const std::lock_guard lock(mutex_);
  stats_.heap_bytes += grown.bytes();
  return grown;
}

void Pipeline::load_images() {
  const HeapWarmup grown = grow_heap(room_.loader);
  LookupTime lookup;
  while (const std::optional<uint32_t> image = libraries_.load_next()) kernels_.look_up_all(*image, lookup);
  const std::lock_guard lock(mutex_);
  stats_.kernels_ms += lookup.kernels_ms;
  stats_.functions += lookup.functions;
  stats_.images_system_ms += system_ms();
  stats_.images_end_ms = std::max(stats_.images_end_ms, ms_since_start());
}

std::optional<uint32_t> Pipeline::next_to_build() {
  std::unique_lock lock(mutex_);
  const auto none_left = [&] { return to_build_.empty() && held_.empty(); };
  work_.wait(lock, [&] { return stopped_ || none_left() || !to_build_.empty(); });
  if (stopped_ || none_left()) return std::nullopt;
  const uint32_t graph = to_build_.front();
  to_build_.pop_front();
  slots_[graph].phase = Phase::building;
  return graph;
}

CUgraph Pipeline::build(uint32_t graph) {
  Stopwatch watch;
  LookupTime lookup;
  Result<CUgraph> built = static_cast<CUgraph>(nullptr);
  {
    trace::Span span("build", view_.text(view_.graphs[graph].name));
    span.count(view_.graphs[graph].node_count);
    try {
      built = builder_.build(graph, lookup);
    } catch (const std::exception& failure) {
      built = Error{ErrorKind::out_of_memory, 0, format("graph %u was not built: %s", graph, failure.what())};
    }
  }
  const std::lock_guard lock(mutex_);
  stats_.build_ms += watch.lap() - lookup.waiting_ms - lookup.kernels_ms;
  stats_.kernels_ms += lookup.kernels_ms;
  stats_.functions += lookup.functions;
  stats_.graphs_system_ms += system_ms();
  stats_.build_end_ms = ms_since_start();
  if (built.ok()) return built.value();
  finish(graph, std::move(built).error());
  return nullptr;
}

void Pipeline::restore_graphs() {
  const HeapWarmup grown = grow_heap(room_.builder);
  while (const std::optional<uint32_t> graph = next_to_build()) {
    if (const CUgraph built = build(*graph); built != nullptr) instantiate(*graph, built);
  }
}

Result<CUgraphExec> Pipeline::exec_of(uint32_t graph, CUgraph built) {
  trace::Span span("instantiate", view_.text(view_.graphs[graph].name));
  span.count(view_.graphs[graph].node_count);
  CUgraphExec exec = nullptr;
  const CUresult code = driver_.cuGraphInstantiateWithFlags(&exec, built, options_.instantiate_flags);
  driver_.cuGraphDestroy(built);
  if (code == CUDA_SUCCESS) return exec;
  return driver_.error(code, "cuGraphInstantiateWithFlags")
      .within("graph " + std::string(view_.text(view_.graphs[graph].name)));
}

void Pipeline::instantiate(uint32_t graph, CUgraph built) {
  Stopwatch watch;
  Result<CUgraphExec> exec = exec_of(graph, built);
  const std::lock_guard lock(mutex_);
  stats_.instantiate_ms += watch.lap();
  stats_.graphs_system_ms += system_ms();
  finish(graph, std::move(exec));
}

double Pipeline::ms_since_start() const {
  Stopwatch watch = start_;
  return watch.lap();
}

void Pipeline::finish(uint32_t graph, Result<CUgraphExec> exec) {
  Slot& slot = slots_[graph];
  if (exec.ok()) {
    if (stats_.graphs_ready++ == 0) stats_.first_ready_ms = ms_since_start();
    stats_.nodes += view_.graphs[graph].node_count;
    stats_.edges += view_.graphs[graph].edge_count;
    keep(graph, exec.value());
  } else {
    slot.phase = Phase::failed;
    slot.error = std::move(exec).error();
    ++stats_.graphs_failed;
  }
  if (--open_ == 0) stats_.total_ms = ms_since_start();
  done_.notify_all();
}

void Pipeline::keep(uint32_t graph, CUgraphExec exec) {
  Slot& slot = slots_[graph];
  slot.phase = Phase::ready;
  slot.exec.store(exec, std::memory_order_release);
  const ExecBytes bytes = exec_bytes(view_, graph);
  stats_.exec_device_bytes += bytes.device;
  stats_.exec_host_bytes += bytes.host;
  ++stats_.execs;
  if (options_.exec_budget != 0) evict(graph);
}

void Pipeline::evict(uint32_t but) {
  // Least wanted first: never used and last in order, else used longest ago.
  const auto less_wanted = [&](uint32_t a, uint32_t b) {
    const Slot& x = slots_[a];
    const Slot& y = slots_[b];
    if (x.used_at != y.used_at) return x.used_at < y.used_at;
    return x.place > y.place;
  };
  while (stats_.exec_device_bytes > options_.exec_budget) {
    std::optional<uint32_t> victim;
    for (const uint32_t graph : options_.order) {
      const Slot& slot = slots_[graph];
      if (slot.phase != Phase::ready || slot.users > 0) continue;
      // What was just built for a launch must stay; what the restore built may go again.
      if (graph == but && slot.used_at != 0) continue;
      if (!victim || less_wanted(graph, *victim)) victim = graph;
    }
    if (!victim) return;  // all are in use, or it is the only one
    Slot& slot = slots_[*victim];
    slot.phase = Phase::evicted;
    // If it runs, the driver frees it when it has ended.
    driver_.cuGraphExecDestroy(slot.exec.exchange(nullptr));
    const ExecBytes bytes = exec_bytes(view_, *victim);
    stats_.exec_device_bytes -= bytes.device;
    stats_.exec_host_bytes -= bytes.host;
    --stats_.execs;
    ++stats_.evicted;
  }
}

void Pipeline::stop(const Error& reason) {
  libraries_.cancel();
  const std::lock_guard lock(mutex_);
  if (!stopped_) {
    stopped_ = reason;
    for (const uint32_t graph : to_build_) finish(graph, reason);
    for (const uint32_t graph : held_) finish(graph, reason);
    to_build_.clear();
    held_.clear();
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
  if (slot.phase == Phase::held || slot.phase == Phase::queued)
    libraries_.hurry(images_of(view_, std::span(&graph, 1)));
  if (slot.phase == Phase::queued) {
    std::stable_partition(to_build_.begin(), to_build_.end(), [&](uint32_t queued) { return queued == graph; });
  }
}

void Pipeline::release() {
  const std::lock_guard lock(mutex_);
  for (const uint32_t graph : held_) {
    slots_[graph].phase = Phase::queued;
    to_build_.push_back(graph);
  }
  held_.clear();
  // As if none had been held back.
  std::stable_sort(to_build_.begin(), to_build_.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(!slots_[a].urgent, slots_[a].place) < std::pair(!slots_[b].urgent, slots_[b].place);
  });
  work_.notify_all();
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
  done_.wait(lock,
             [&] { return slot.phase == Phase::ready || slot.phase == Phase::evicted || slot.phase == Phase::failed; });
  if (slot.phase == Phase::failed) return slot.error;
  return slot.exec.load();
}

Result<CUgraphExec> Pipeline::acquire(uint32_t graph) {
  if (options_.exec_budget == 0) return wait(graph);
  FOUNDRY_ASSIGN([[maybe_unused]] const CUgraphExec restored, wait(graph));
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[graph];
  slot.used_at = ++clock_;
  while (slot.phase != Phase::ready) {
    if (slot.phase == Phase::evicted) {
      FOUNDRY_TRY(rebuild(graph, lock));
    } else {
      done_.wait(lock);  // another thread builds it
    }
  }
  ++slot.users;
  return slot.exec.load();
}

void Pipeline::give_back(uint32_t graph) {
  if (options_.exec_budget == 0) return;
  const std::lock_guard lock(mutex_);
  --slots_[graph].users;
  evict(graph);
}

Status Pipeline::rebuild(uint32_t graph, std::unique_lock<std::mutex>& lock) {
  Slot& slot = slots_[graph];
  slot.phase = Phase::building;
  lock.unlock();
  LookupTime lookup;
  Result<CUgraphExec> exec = static_cast<CUgraphExec>(nullptr);
  try {
    const driver::RelaxedCaptureMode relaxed(driver_);
    Result<CUgraph> built = builder_.build(graph, lookup);
    exec = built.ok() ? exec_of(graph, built.value()) : Result<CUgraphExec>(std::move(built).error());
  } catch (const std::exception& failure) {
    exec = Error{ErrorKind::out_of_memory, 0, format("graph %u was not built again: %s", graph, failure.what())};
  }
  lock.lock();
  slot.phase = Phase::evicted;  // the next launch tries again
  if (exec.ok()) {
    ++stats_.rebuilt;
    keep(graph, exec.value());
  }
  done_.notify_all();
  return exec.ok() ? success() : Status(std::move(exec).error());
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
