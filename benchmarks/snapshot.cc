// What SAVE's reading of graphs takes, and what the driver's part of it is: the graphs of an archive, built and read
// again.
#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "benchmarks/archive.h"
#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "csrc/graph/graph_builder.h"
#include "csrc/graph/images.h"
#include "csrc/graph/kernels.h"
#include "csrc/graph/node_attributes.h"
#include "csrc/graph/snapshot.h"

namespace foundry::benchmarks {
namespace {

using driver::Driver;

// Finds a kernel's image by the kernel's name, as the archive has it.
class NamedImages : public graph::ImageResolver {
 public:
  explicit NamedImages(const graph::GraphView& view) {
    for (const archive::FunctionRecord& function : view.functions) {
      images_.emplace(view.text(function.name), function.image);
    }
  }
  uint64_t refresh() override { return 0; }
  Result<uint64_t> resolve(const graph::KernelHandle&, std::string_view name) override {
    const auto found = images_.find(name);
    if (found == images_.end()) return Error{ErrorKind::invalid, 0, "a kernel that the archive does not have"};
    return found->second;
  }

 private:
  boost::unordered_flat_map<std::string_view, uint64_t> images_;
};

struct Graphs {
  explicit Graphs(const Driver& driver) : cu(driver) {}
  ~Graphs() {
    for (const CUgraph graph : made) cu.cuGraphDestroy(graph);
  }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  const Driver& cu;
  std::vector<CUgraph> made;
};

// Nanoseconds of each call that a kernel node takes, by name; what the driver refuses is "(refused)".
Result<std::string> calls(const Driver& cu, const std::vector<CUgraph>& graphs) {
  std::vector<CUgraphNode> kernels;
  for (const CUgraph graph : graphs) {
    size_t count = 0;
    FOUNDRY_CU(cu, cuGraphGetNodes, graph, nullptr, &count);
    std::vector<CUgraphNode> nodes(count);
    FOUNDRY_CU(cu, cuGraphGetNodes, graph, nodes.data(), &count);
    for (const CUgraphNode node : nodes) {
      CUgraphNodeType type{};
      FOUNDRY_CU(cu, cuGraphNodeGetType, node, &type);
      if (type == CU_GRAPH_NODE_TYPE_KERNEL) kernels.push_back(node);
    }
  }
  std::string text;
  const auto time = [&](const std::string& name, auto&& call) {
    bool refused = false;
    Stopwatch watch;
    for (const CUgraphNode node : kernels) refused = call(node) != CUDA_SUCCESS || refused;
    text += format("%s\"%s%s\": %.1f", text.empty() ? "" : ", ", name.c_str(), refused ? " (refused)" : "",
                   watch.lap() * 1e6 / static_cast<double>(kernels.size()));
  };
  time("type", [&](CUgraphNode node) {
    CUgraphNodeType type{};
    return cu.cuGraphNodeGetType(node, &type);
  });
  time("parameters", [&](CUgraphNode node) {
    CUDA_KERNEL_NODE_PARAMS params{};
    return cu.cuGraphKernelNodeGetParams(node, &params);
  });
  for (const graph::LaunchAttributeInfo& row : graph::launch_attributes()) {
    if (row.handling == graph::AttributeHandling::ignored) continue;
    time(row.words, [&](CUgraphNode node) {
      CUlaunchAttributeValue value;
      return cu.cuGraphKernelNodeGetAttribute(node, row.id, &value);
    });
  }
  return text;
}

Result<std::string> snapshot(const std::string& path, const Options& options) {
  FOUNDRY_ASSIGN(const Driver cu, Driver::open());
  CUdevice device = 0;
  CUcontext context = nullptr;
  FOUNDRY_CU(cu, cuCtxGetDevice, &device);
  FOUNDRY_CU(cu, cuCtxGetCurrent, &context);
  Archive data;
  FOUNDRY_TRY(open(path, options, data));
  if (data.nodes == 0) return Error{ErrorKind::invalid, 0, "the archive has no graph of kernels alone"};
  graph::Libraries libraries(
      cu, data.view, [&](uint32_t index) { return data.image(index); }, graph::images_of(data.view, data.order));
  FOUNDRY_TRY(load(cu, options, libraries));
  std::string result;
  {
    graph::Kernels kernels(cu, data.view, libraries, device);
    const graph::GraphBuilder builder({cu, data.view, libraries, kernels, context, {}, {}, {}});
    Graphs graphs(cu);
    graph::LookupTime lookup;
    for (const uint32_t index : data.order) {
      FOUNDRY_ASSIGN(const CUgraph made, builder.build(index, lookup));
      graphs.made.push_back(made);
    }
    NamedImages images(data.view);
    Stopwatch watch;
    {
      graph::Snapshotter snapshotter(cu, images);
      for (size_t i = 0; i < graphs.made.size(); ++i) {
        FOUNDRY_TRY(snapshotter.add(graphs.made[i], std::to_string(i)));
      }
    }
    const double ms = watch.lap();
    FOUNDRY_ASSIGN(const std::string of_calls, calls(cu, graphs.made));
    result = format("{\"graphs\": %zu, \"nodes\": %llu, \"ms\": %.3f, \"ms a graph\": %.4f, \"ns\": {%s}}",
                    graphs.made.size(), static_cast<unsigned long long>(data.nodes), ms,
                    ms / static_cast<double>(graphs.made.size()), of_calls.c_str());
  }
  libraries.unload();
  return result;
}

}  // namespace
}  // namespace foundry::benchmarks

extern "C" __attribute__((visibility("default"))) int foundry_snapshot(const char* path,
                                                                       const foundry::benchmarks::Options* options,
                                                                       char* out, size_t bytes) {
  return foundry::benchmarks::answer(foundry::benchmarks::snapshot(path, *options), out, bytes);
}
