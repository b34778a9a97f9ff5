// What the driver alone needs for the graphs of an archive, and what Foundry's Restorer needs for the same: a library
// with a C interface, so that it measures inside a process that has the framework and its context.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "benchmarks/archive.h"
#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "csrc/driver/driver.h"
#include "csrc/graph/kernels.h"
#include "csrc/graph/libraries.h"
#include "csrc/graph/pipeline.h"
#include "csrc/graph/restore.h"
#include "csrc/graph/tables.h"

namespace foundry::benchmarks {
namespace {

using driver::Driver;

// One graph as the driver takes it.
struct Prepared {
  std::vector<CUDA_KERNEL_NODE_PARAMS> kernels;  // no function and no kernel: an empty node
  std::vector<std::vector<const archive::LaunchAttributeRecord*>> attributes;
  std::vector<uint32_t> from, to;  // by kind of edge
  std::vector<CUgraphEdgeData> data;
  std::vector<size_t> calls;                   // where each kind ends
  std::vector<std::vector<uint32_t>> parents;  // edges_with_nodes
  std::deque<std::vector<void*>> parameters;
  std::deque<std::array<void*, 5>> extra;
  std::deque<size_t> extra_bytes;
};

// Milliseconds of one pass, summed over threads but for `wall`.
struct Pass {
  double wall = 0, add = 0, edges = 0, instantiate = 0, destroy_graphs = 0, destroy_execs = 0;
  int64_t device_bytes = 0, host_bytes = 0;
};

int64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  int64_t size = 0, resident = 0;
  status >> size >> resident;
  return resident * 4096;
}

class Loop {
 public:
  Loop(const Driver& cu, const Archive& data, const Options& options) : cu_(cu), data_(data), options_(options) {}

  Status prepare(graph::Kernels& kernels, graph::Libraries& libraries) {
    const graph::GraphView& view = data_.view;
    graph::LookupTime time;
    for (const uint32_t index : data_.order) {
      const archive::GraphRecord& record = view.graphs[index];
      Prepared& made = graphs_.emplace_back();
      for (const archive::NodeRecord& node : view.nodes.subspan(record.first_node, record.node_count)) {
        CUDA_KERNEL_NODE_PARAMS params{};
        made.attributes.emplace_back();
        if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) {
          FOUNDRY_TRY(fill(view.kernels[node.payload], kernels, libraries, time, made, params));
        }
        made.kernels.push_back(params);
      }
      edges(record, made);
    }
    execs_.resize(graphs_.size());
    return success();
  }

  Result<Pass> run() {
    Pass pass;
    size_t free_before = 0, free_after = 0, total = 0;
    cu_.cuMemGetInfo(&free_before, &total);
    const int64_t resident = resident_bytes();
    Stopwatch watch;
    const Status status = options_.threads > 1 ? two_threads(pass) : one_thread(pass);
    pass.wall = watch.lap();
    cu_.cuMemGetInfo(&free_after, &total);
    pass.device_bytes = static_cast<int64_t>(free_before) - static_cast<int64_t>(free_after);
    pass.host_bytes = resident_bytes() - resident;
    watch.lap();
    for (CUgraphExec& exec : execs_) {
      if (exec != nullptr) cu_.cuGraphExecDestroy(exec);
      exec = nullptr;
    }
    pass.destroy_execs = watch.lap();
    if (!status.ok()) return status.error();
    return pass;
  }

 private:
  Status fill(const archive::KernelRecord& record, graph::Kernels& kernels, graph::Libraries& libraries,
              graph::LookupTime& time, Prepared& made, CUDA_KERNEL_NODE_PARAMS& params) {
    const graph::GraphView& view = data_.view;
    const archive::FunctionRecord& function = view.functions[record.function];
    FOUNDRY_ASSIGN(params.func, kernels.find(record.function, time));
    if (options_.by_kernel != 0) {
      FOUNDRY_ASSIGN(const CUlibrary library, libraries.wait(function.image));
      params.func = nullptr;
      FOUNDRY_CU(cu_, cuLibraryGetKernel, &params.kern, library, std::string(view.text(function.name)).c_str());
    }
    params.gridDimX = record.grid[0];
    params.gridDimY = record.grid[1];
    params.gridDimZ = record.grid[2];
    params.blockDimX = record.block[0];
    params.blockDimY = record.block[1];
    params.blockDimZ = record.block[2];
    params.sharedMemBytes = record.dynamic_shared_bytes;
    auto* arguments = const_cast<std::byte*>(view.arguments.data()) + record.arguments;
    if (record.argument_form == static_cast<uint32_t>(archive::ArgumentForm::extra)) {
      size_t& bytes = made.extra_bytes.emplace_back(record.argument_bytes);
      params.extra = made.extra
                         .emplace_back(std::array<void*, 5>{CU_LAUNCH_PARAM_BUFFER_POINTER, arguments,
                                                            CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END})
                         .data();
    } else {
      std::vector<void*>& each = made.parameters.emplace_back();
      for (uint32_t i = 0; i < function.param_count; ++i) {
        each.push_back(arguments + view.params[function.first_param + i].offset);
      }
      params.kernelParams = each.data();
    }
    for (uint32_t i = 0; i < record.attribute_count; ++i) {
      made.attributes.back().push_back(&view.launch_attributes[record.first_attribute + i]);
    }
    return success();
  }

  void edges(const archive::GraphRecord& record, Prepared& made) const {
    const auto all = data_.view.edges.subspan(record.first_edge, record.edge_count);
    std::vector<const archive::EdgeRecord*> sorted;
    made.parents.resize(record.node_count);
    for (const archive::EdgeRecord& edge : all) {
      const bool special = edge.type != 0 || edge.from_port != 0 || edge.to_port != 0;
      if (options_.edges_with_nodes != 0 && !special && edge.from < edge.to) {
        made.parents[edge.to].push_back(edge.from);
      } else {
        sorted.push_back(&edge);
      }
    }
    const auto kind = [](const archive::EdgeRecord* e) { return std::tie(e->type, e->from_port, e->to_port); };
    std::stable_sort(sorted.begin(), sorted.end(), [&](auto* a, auto* b) { return kind(a) < kind(b); });
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (i > 0 && kind(sorted[i - 1]) != kind(sorted[i])) made.calls.push_back(i);
      CUgraphEdgeData data{};
      data.from_port = sorted[i]->from_port;
      data.to_port = sorted[i]->to_port;
      data.type = sorted[i]->type;
      made.from.push_back(sorted[i]->from);
      made.to.push_back(sorted[i]->to);
      made.data.push_back(data);
    }
    if (!sorted.empty()) made.calls.push_back(sorted.size());
  }

  Status add(const Prepared& prepared, Pass& pass, CUgraph& into) const {
    Stopwatch watch;
    FOUNDRY_CU(cu_, cuGraphCreate, &into, 0);
    std::vector<CUgraphNode> nodes(prepared.kernels.size());
    std::vector<CUgraphNode> parents;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const CUDA_KERNEL_NODE_PARAMS& params = prepared.kernels[i];
      parents.clear();
      for (const uint32_t parent : prepared.parents[i]) parents.push_back(nodes[parent]);
      const CUgraphNode* first = parents.empty() ? nullptr : parents.data();
      if (params.func == nullptr && params.kern == nullptr) {
        FOUNDRY_CU(cu_, cuGraphAddEmptyNode, &nodes[i], into, first, parents.size());
      } else {
        FOUNDRY_CU(cu_, cuGraphAddKernelNode, &nodes[i], into, first, parents.size(), &params);
      }
      for (const archive::LaunchAttributeRecord* attribute : prepared.attributes[i]) {
        CUlaunchAttributeValue value;
        std::memcpy(&value, attribute->value, sizeof value);
        FOUNDRY_CU(cu_, cuGraphKernelNodeSetAttribute, nodes[i], static_cast<CUlaunchAttributeID>(attribute->id),
                   &value);
      }
    }
    pass.add += watch.lap();
    std::vector<CUgraphNode> from, to;
    for (size_t i = 0; i < prepared.from.size(); ++i) {
      from.push_back(nodes[prepared.from[i]]);
      to.push_back(nodes[prepared.to[i]]);
    }
    size_t begin = 0;
    for (const size_t end : prepared.calls) {
      FOUNDRY_CU(cu_, cuGraphAddDependencies, into, &from[begin], &to[begin], &prepared.data[begin], end - begin);
      begin = end;
    }
    pass.edges += watch.lap();
    return success();
  }

  Status instantiate(CUgraph graph, Pass& pass, CUgraphExec& exec) const {
    Stopwatch watch;
    const CUresult code = cu_.cuGraphInstantiateWithFlags(&exec, graph, graph::RestoreOptions{}.instantiate_flags);
    pass.instantiate += watch.lap();
    cu_.cuGraphDestroy(graph);
    pass.destroy_graphs += watch.lap();
    if (code != CUDA_SUCCESS) return cu_.error(code, "cuGraphInstantiateWithFlags");
    return success();
  }

  Status one_thread(Pass& pass) {
    for (size_t i = 0; i < graphs_.size(); ++i) {
      CUgraph made = nullptr;
      FOUNDRY_TRY(add(graphs_[i], pass, made));
      FOUNDRY_TRY(instantiate(made, pass, execs_[i]));
    }
    return success();
  }

  Status two_threads(Pass& pass) {
    CUcontext context = nullptr;
    FOUNDRY_CU(cu_, cuCtxGetCurrent, &context);
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<size_t, CUgraph>> ready;
    bool ended = false;
    Pass added;
    Status adding = success();
    std::thread adder([&] {
      const driver::ScopedContext current(cu_, context);
      for (size_t i = 0; i < graphs_.size() && adding.ok(); ++i) {
        CUgraph made = nullptr;
        adding = add(graphs_[i], added, made);
        const std::lock_guard lock(mutex);
        if (adding.ok()) ready.emplace_back(i, made);
        changed.notify_one();
      }
      const std::lock_guard lock(mutex);
      ended = true;
      changed.notify_one();
    });
    Status status = success();
    while (true) {
      std::pair<size_t, CUgraph> next;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return ended || !ready.empty(); });
        if (ready.empty()) break;
        next = ready.front();
        ready.pop_front();
      }
      const Status done = instantiate(next.second, pass, execs_[next.first]);
      if (!done.ok()) status = done;
    }
    adder.join();
    pass.add = added.add;
    pass.edges = added.edges;
    return adding.ok() ? status : adding;
  }

  const Driver& cu_;
  const Archive& data_;
  const Options& options_;
  std::deque<Prepared> graphs_;  // never moved: pointers into them were given away
  std::vector<CUgraphExec> execs_;
};

Result<std::string> driver_loop(const std::string& path, const Options& options) {
  FOUNDRY_ASSIGN(const Driver cu, Driver::open());
  CUdevice device = 0;
  FOUNDRY_CU(cu, cuCtxGetDevice, &device);
  Archive data;
  FOUNDRY_TRY(open(path, options, data));
  Stopwatch watch;
  const std::vector<uint32_t> images = graph::images_of(data.view, data.order);
  graph::Libraries libraries(cu, data.view, [&](uint32_t index) { return data.image(index); }, images);
  FOUNDRY_TRY(load(cu, options, libraries));
  const double images_ms = watch.lap();
  graph::Kernels kernels(cu, data.view, libraries, device);
  graph::LookupTime lookup;
  for (const uint32_t image : images) kernels.look_up_all(image, lookup);
  const double kernels_ms = watch.lap();
  std::string passes;
  {
    Loop loop(cu, data, options);
    FOUNDRY_TRY(loop.prepare(kernels, libraries));
    for (uint32_t i = 0; i < options.passes; ++i) {
      FOUNDRY_ASSIGN(const Pass pass, loop.run());
      passes += format(
          "%s{\"wall\": %.3f, \"add\": %.3f, \"edges\": %.3f, \"instantiate\": %.3f, \"destroy_graphs\": %.3f, "
          "\"destroy_execs\": %.3f, \"device_bytes\": %lld, \"host_bytes\": %lld}",
          passes.empty() ? "" : ", ", pass.wall, pass.add, pass.edges, pass.instantiate, pass.destroy_graphs,
          pass.destroy_execs, static_cast<long long>(pass.device_bytes), static_cast<long long>(pass.host_bytes));
    }
  }
  libraries.unload();
  return format(
      "{\"graphs\": %zu, \"nodes\": %llu, \"skipped\": %u, \"images\": %u, \"functions\": %u, \"images_ms\": %.3f, "
      "\"kernels_ms\": %.3f, \"passes\": [%s]}",
      data.order.size(), static_cast<unsigned long long>(data.nodes), data.skipped, libraries.stats().images,
      lookup.functions, images_ms, kernels_ms, passes.c_str());
}

Result<std::string> restore(const std::string& path, const Options& options) {
  FOUNDRY_ASSIGN(const Driver cu, Driver::open());
  Archive data;
  FOUNDRY_TRY(open(path, options, data));
  graph::RestoreOptions with;
  FOUNDRY_CU(cu, cuCtxGetCurrent, &with.context);
  FOUNDRY_CU(cu, cuCtxGetDevice, &with.device);
  with.order = data.order;
  // Synthetic graphs are equal, and each shall be built.
  with.tuning = {options.image_threads, options.graph_threads, options.grow_heaps != 0, options.graphs == 0};
  size_t free_before = 0, free_after = 0, total = 0;
  FOUNDRY_CU(cu, cuMemGetInfo, &free_before, &total);
  const int64_t resident = resident_bytes();
  Stopwatch watch;
  FOUNDRY_ASSIGN(
      const auto restorer,
      graph::Restorer::start(cu, data.view, [&](uint32_t index) { return data.image(index); }, std::move(with)));
  FOUNDRY_TRY(restorer->wait_all());
  const double wall = watch.lap();
  FOUNDRY_CU(cu, cuMemGetInfo, &free_after, &total);
  const int64_t host_bytes = resident_bytes() - resident;
  const graph::RestoreStats stats = restorer->stats();
  return format(
      "{\"graphs\": %u, \"nodes\": %llu, \"skipped\": %u, \"wall\": %.3f, \"images\": %.3f, \"kernels\": %.3f, "
      "\"build\": %.3f, \"instantiate\": %.3f, \"images_end\": %.3f, \"build_end\": %.3f, \"first\": %.3f, "
      "\"device_bytes\": %lld, \"host_bytes\": %lld}",
      stats.graphs_ready, static_cast<unsigned long long>(stats.nodes), data.skipped, wall, stats.images_ms,
      stats.kernels_ms, stats.build_ms, stats.instantiate_ms, stats.images_end_ms, stats.build_end_ms,
      stats.first_ready_ms, static_cast<long long>(free_before) - static_cast<long long>(free_after),
      static_cast<long long>(host_bytes));
}

}  // namespace
}  // namespace foundry::benchmarks

using foundry::benchmarks::Options;

extern "C" __attribute__((visibility("default"))) void foundry_default_options(Options* options) { *options = {}; }
// Both write JSON (or, when they return 1, what went wrong) to `out`. A context must be current.
extern "C" __attribute__((visibility("default"))) int foundry_driver_loop(const char* path, const Options* options,
                                                                          char* out, size_t bytes) {
  return foundry::benchmarks::answer(foundry::benchmarks::driver_loop(path, *options), out, bytes);
}
extern "C" __attribute__((visibility("default"))) int foundry_restore(const char* path, const Options* options,
                                                                      char* out, size_t bytes) {
  return foundry::benchmarks::answer(foundry::benchmarks::restore(path, *options), out, bytes);
}
