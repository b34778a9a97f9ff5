#include "benchmarks/archive.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "csrc/archive/images.h"
#include "csrc/archive/validate.h"

namespace foundry::benchmarks {
namespace {

// Graphs that the driver loop can add: kernels and empty nodes only.
bool plain(const graph::GraphView& view, uint32_t index) {
  const archive::GraphRecord& record = view.graphs[index];
  if ((record.flags & (archive::kGraphIsChild | archive::kGraphLeftOut)) != 0) return false;
  const auto nodes = view.nodes.subspan(record.first_node, record.node_count);
  return std::all_of(nodes.begin(), nodes.end(), [](const archive::NodeRecord& node) {
    return node.type == CU_GRAPH_NODE_TYPE_KERNEL || node.type == CU_GRAPH_NODE_TYPE_EMPTY;
  });
}

void synthesize(Archive& data, const Options& options) {
  graph::GraphTables& made = data.synthetic;
  std::vector<uint32_t> kernels;
  for (const archive::GraphRecord& record : data.view.graphs) {
    if ((record.flags & archive::kGraphLeftOut) != 0) continue;
    for (const archive::NodeRecord& node : data.view.nodes.subspan(record.first_node, record.node_count)) {
      if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) kernels.push_back(node.payload);
    }
  }
  data.order.clear();
  data.skipped = 0;
  for (uint32_t g = 0; g < options.graphs && !kernels.empty(); ++g) {
    archive::GraphRecord record{};
    record.first_node = static_cast<uint32_t>(made.nodes.size());
    record.node_count = options.nodes;
    record.first_edge = static_cast<uint32_t>(made.edges.size());
    record.edge_count = options.nodes - 1;
    for (uint32_t i = 0; i < options.nodes; ++i) {
      made.nodes.push_back({CU_GRAPH_NODE_TYPE_KERNEL, kernels[(uint64_t{g} * options.nodes + i) % kernels.size()]});
      if (i > 0) made.edges.push_back({i - 1, i, 0, 0, 0, {}});
    }
    made.graphs.push_back(record);
    data.order.push_back(g);
  }
  data.view.nodes = made.nodes;
  data.view.edges = made.edges;
  data.view.graphs = made.graphs;
  data.view.pointers = {};
}

}  // namespace

Status open(const std::string& path, const Options& options, Archive& data) {
  FOUNDRY_ASSIGN(data.directory, archive::open_directory(path));
  FOUNDRY_ASSIGN(data.file, archive::File::open(data.directory.get(), "rank_0/graphs.fdry", archive::FileKind::graphs));
  FOUNDRY_TRY(archive::validate(data.file));
  data.view = graph::GraphView::of(data.file);
  for (uint32_t i = 0; i < data.view.graphs.size(); ++i) {
    if (plain(data.view, i)) {
      data.order.push_back(i);
    } else if ((data.view.graphs[i].flags & (archive::kGraphIsChild | archive::kGraphLeftOut)) == 0) {
      ++data.skipped;
    }
  }
  if (options.graphs != 0) synthesize(data, options);
  for (const uint32_t index : data.order) data.nodes += data.view.graphs[index].node_count;
  return success();
}

Result<graph::ImageBytes> Archive::image(uint32_t index) const {
  const archive::ImageRecord& record = view.images[index];
  FOUNDRY_ASSIGN(archive::PrivateMemory read, archive::read_image(directory.get(), record.hash, record.bytes));
  auto bytes = std::make_shared<archive::PrivateMemory>(std::move(read));
  return graph::ImageBytes{std::as_const(*bytes).bytes(), bytes};
}

Status load(const driver::Driver& driver, const Options& options, graph::Libraries& libraries) {
  CUcontext context = nullptr;
  FOUNDRY_CU(driver, cuCtxGetCurrent, &context);
  std::vector<std::thread> loaders;
  for (uint32_t i = 0; i < std::max(1u, options.image_threads); ++i) {
    loaders.emplace_back([&] {
      const driver::ScopedContext current(driver, context);
      while (libraries.load_next()) {
      }
    });
  }
  for (std::thread& loader : loaders) loader.join();
  return success();
}

int answer(const Result<std::string>& result, char* out, size_t bytes) {
  const std::string& text = result.ok() ? result.value() : result.error().text;
  std::snprintf(out, bytes, "%s", text.c_str());
  return result.ok() ? 0 : 1;
}

}  // namespace foundry::benchmarks
