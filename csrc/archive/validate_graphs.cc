// Semantic checks of graphs.fdry: indices, ranges, argument sizes, acyclic graphs, bounded child graphs.
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "csrc/archive/checker.h"
#include "csrc/archive/extents.h"
#include "csrc/archive/images.h"
#include "csrc/archive/validate.h"
#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

class GraphsValidator {
 public:
  explicit GraphsValidator(const File& file)
      : file_(file),
        check_(file),
        functions_(file.section<Section::functions>()),
        params_(file.section<Section::params>()),
        graphs_(file.section<Section::graphs>()),
        nodes_(file.section<Section::nodes>()),
        kernels_(file.section<Section::kernels>()),
        edges_(file.section<Section::edges>()),
        globals_(file.section<Section::module_globals>()),
        host_ranges_(file.section<Section::host_ranges>()) {}

  void run() {
    check_.strings();
    images();
    functions();
    launch_attributes();
    host_ranges();
    kernels();
    memcpys();
    memsets();
    events();
    nodes();
    graphs();
    children();
    module_globals();
    pointers();
  }

 private:
  // Records may share ranges, but what a file makes its readers walk over stays within the table's limits.
  void count(uint64_t& total, uint64_t more, Section section) {
    total += more;
    if (total > section_info(section).most_records) {
      check_.fail(std::string("the records up to here claim more of section ") + section_info(section).name +
                  " than the format allows");
    }
  }

  void images() {
    const auto images = file_.section<Section::images>();
    // One image may be listed twice: loaded twice, it has two sets of module variables.
    for (size_t i = 0; i < images.size(); ++i) {
      check_.at(Section::images, i);
      const bool stored = images[i].bytes > 0 && images[i].bytes <= kMostImageBytes;
      const bool left_out = images[i].bytes == 0 && hex(images[i].hash) == hex(Hash128{});
      check_.require(stored || left_out, "the image's size is impossible");
      check_.require(images[i].format >= 1 && images[i].format <= kLastImageFormat, "the image's format is unknown");
      check_.reserved(images[i].reserved);
      check_.text("source", images[i].source);
    }
  }

  void functions() {
    const size_t images = file_.section<Section::images>().size();
    const auto attributes = file_.section<Section::function_attributes>();
    for (size_t i = 0; i < attributes.size(); ++i) {
      check_.at(Section::function_attributes, i);
      check_.require(attributes[i].attribute >= 0 && static_cast<uint32_t>(attributes[i].attribute) < kMostAttributes,
                     "the attribute is impossible");
    }
    uint64_t params = 0, attribute_total = 0;
    params_end_.reserve(functions_.size());
    for (size_t i = 0; i < functions_.size(); ++i) {
      const FunctionRecord& function = functions_[i];
      check_.at(Section::functions, i);
      check_.name("name", function.name);
      check_.index("image", function.image, Section::images, images);
      check_.range("params", function.first_param, function.param_count, Section::params, params_.size());
      check_.range("attributes", function.first_attribute, function.attribute_count, Section::function_attributes,
                   attributes.size());
      check_.reserved(function.reserved);
      count(params, function.param_count, Section::params);
      count(attribute_total, function.attribute_count, Section::function_attributes);
      uint64_t end = 0;
      for (const ParamRecord& param : params_.subspan(function.first_param, function.param_count)) {
        check_.require(param.offset >= end, "its parameters are not in order or overlap");
        end = uint64_t{param.offset} + param.bytes;
        check_.require(end <= kMostArgumentBytes, "its parameters are larger than a kernel can take");
      }
      params_end_.push_back(static_cast<uint32_t>(end));
    }
  }

  void launch_attributes() {
    const auto attributes = file_.section<Section::launch_attributes>();
    for (size_t i = 0; i < attributes.size(); ++i) {
      check_.at(Section::launch_attributes, i);
      check_.require(attributes[i].id < kMostAttributes, "the attribute is impossible");
      check_.reserved(attributes[i].reserved);
    }
  }

  void kernels() {
    const size_t attributes = file_.section<Section::launch_attributes>().size();
    const size_t arguments = file_.section<Section::arguments>().size();
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const KernelRecord& kernel = kernels_[i];
      check_.at(Section::kernels, i);
      check_.index("function", kernel.function, Section::functions, functions_.size());
      uint64_t threads = 1;
      for (int axis = 0; axis < 3; ++axis) {
        check_.require(kernel.grid[axis] > 0 && kernel.block[axis] > 0, "a dimension of grid or block is zero");
        check_.require(kernel.block[axis] <= kMostBlockThreads, "the block is larger than a GPU allows");
        threads *= kernel.block[axis];
      }
      check_.require(threads <= kMostBlockThreads, "the block is larger than a GPU allows");
      check_.require(kernel.argument_form == static_cast<uint32_t>(ArgumentForm::params) ||
                         kernel.argument_form == static_cast<uint32_t>(ArgumentForm::extra),
                     "the form of its arguments is unknown");
      check_.require(kernel.argument_bytes <= kMostArgumentBytes, "its arguments are larger than a kernel can take");
      check_.require(kernel.argument_bytes >= params_end_[kernel.function],
                     "it has fewer argument bytes than its function's parameters take");
      check_.range("arguments", kernel.arguments, kernel.argument_bytes, Section::arguments, arguments);
      check_.range("attributes", kernel.first_attribute, kernel.attribute_count, Section::launch_attributes,
                   attributes);
      check_.require(kernel.attribute_count <= kMostAttributes, "it has too many attributes");
    }
  }

  void host_ranges() {
    boost::unordered_flat_set<std::string_view> names;
    for (size_t i = 0; i < host_ranges_.size(); ++i) {
      const HostRangeRecord& range = host_ranges_[i];
      check_.at(Section::host_ranges, i);
      check_.name("name", range.name);
      check_.require(names.insert(file_.view(range.name)).second, "another host range has the same name");
      check_.require(range.bytes > 0, "it has no bytes");
      check_.addresses("address and bytes", range.address, range.bytes);
    }
    std::vector<size_t> by_address(host_ranges_.size());
    for (size_t i = 0; i < by_address.size(); ++i) by_address[i] = i;
    std::sort(by_address.begin(), by_address.end(),
              [&](size_t a, size_t b) { return host_ranges_[a].address < host_ranges_[b].address; });
    for (size_t i = 1; i < by_address.size(); ++i) {
      const HostRangeRecord& before = host_ranges_[by_address[i - 1]];
      check_.at(Section::host_ranges, by_address[i]);
      check_.require(before.address + before.bytes <= host_ranges_[by_address[i]].address,
                     "it overlaps another host range");
    }
  }

  // LOAD moves a host address with its range: a copy must not leave it.
  void host_side(const char* field, uint64_t base, const Extent& extent) {
    const bool inside = std::any_of(host_ranges_.begin(), host_ranges_.end(), [&](const HostRangeRecord& range) {
      return base - range.address < range.bytes && extent.within(range.address, range.bytes);
    });
    if (!inside) check_.fail(std::string(field) + " is host memory outside the registered ranges");
  }

  // One side of a three-dimensional copy: the last byte's offset must not overflow.
  void copy_side(const char* field, uint64_t address, uint64_t x, uint64_t y, uint64_t z, uint64_t pitch, uint64_t rows,
                 const MemcpyRecord& copy) {
    uint64_t slices = 0, lines = 0, end = 0;
    bool fits = add(z, copy.depth, &slices) && multiply(slices, std::max<uint64_t>(rows, 1), &lines) &&
                add(lines, y, &lines) && add(lines, copy.height, &lines) && multiply(lines, pitch, &end) &&
                add(end, x, &end) && add(end, copy.width_bytes, &end) && add(end, address, &end);
    if (!fits || end > kHighestAddress) check_.fail(std::string(field) + " reaches beyond the address space");
  }

  void memcpys() {
    const auto copies = file_.section<Section::memcpys>();
    for (size_t i = 0; i < copies.size(); ++i) {
      const MemcpyRecord& copy = copies[i];
      check_.at(Section::memcpys, i);
      check_.require((copy.flags & ~kKnownMemcpyFlags) == 0, "its flags are unknown");
      check_.reserved(copy.reserved);
      copy_side("the source", copy.source, copy.source_x, copy.source_y, copy.source_z, copy.source_pitch,
                copy.source_height, copy);
      copy_side("the destination", copy.destination, copy.destination_x, copy.destination_y, copy.destination_z,
                copy.destination_pitch, copy.destination_height, copy);
      if ((copy.flags & kSourceIsHost) != 0) host_side("the source", copy.source, source_extent(copy));
      if ((copy.flags & kDestinationIsHost) != 0) {
        host_side("the destination", copy.destination, destination_extent(copy));
      }
    }
  }

  void memsets() {
    const auto sets = file_.section<Section::memsets>();
    for (size_t i = 0; i < sets.size(); ++i) {
      const MemsetRecord& set = sets[i];
      check_.at(Section::memsets, i);
      check_.require(set.element_bytes == 1 || set.element_bytes == 2 || set.element_bytes == 4,
                     "its elements have an impossible size");
      uint64_t row = 0, end = 0;
      const bool fits = multiply(set.width, set.element_bytes, &row) && multiply(set.height, set.pitch, &end) &&
                        add(end, row, &end) && add(end, set.destination, &end);
      check_.require(fits && end <= kHighestAddress, "it reaches beyond the address space");
    }
  }

  void events() {
    const auto events = file_.section<Section::graph_events>();
    boost::unordered_flat_map<uint32_t, size_t> first;
    for (size_t i = 0; i < events.size(); ++i) {
      check_.at(Section::graph_events, i);
      check_.text("name", events[i].name);
      const auto [at, fresh] = first.try_emplace(events[i].identity, i);
      const EventRecord& other = events[at->second];
      check_.require(fresh || (other.flags == events[i].flags && file_.view(other.name) == file_.view(events[i].name)),
                     "it is the same event as another record, but differs in name or flags");
    }
  }

  void nodes() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      check_.at(Section::nodes, i);
      const uint32_t payload = nodes_[i].payload;
      switch (nodes_[i].type) {
        case kNodeKernel:
          check_.index("payload", payload, Section::kernels, kernels_.size());
          break;
        case kNodeMemcpy:
          check_.index("payload", payload, Section::memcpys, file_.section<Section::memcpys>().size());
          break;
        case kNodeMemset:
          check_.index("payload", payload, Section::memsets, file_.section<Section::memsets>().size());
          break;
        case kNodeGraph:
          check_.index("payload", payload, Section::graphs, graphs_.size());
          break;
        case kNodeEmpty:
          check_.require(payload == kNone, "an empty node has a payload");
          break;
        case kNodeWaitEvent:
        case kNodeEventRecord:
          check_.index("payload", payload, Section::graph_events, file_.section<Section::graph_events>().size());
          break;
        default:
          check_.fail(format("node type %u is not part of the format", nodes_[i].type));
      }
    }
  }

  void graphs() {
    boost::unordered_flat_set<std::string_view> names;
    uint64_t nodes = 0, edges = 0, texts = 0;
    for (size_t i = 0; i < graphs_.size(); ++i) {
      const GraphRecord& graph = graphs_[i];
      check_.at(Section::graphs, i);
      check_.text("name", graph.name);
      check_.text("outputs", graph.outputs, kMostTextBytes);
      count(texts, graph.outputs.bytes, Section::graphs_strings);
      check_.require((graph.flags & ~kKnownGraphFlags) == 0, "its flags are unknown");
      check_.reserved(graph.reserved);
      check_.addresses("generator_seed", graph.generator_seed, kGeneratorWordBytes);
      check_.addresses("generator_offset", graph.generator_offset, kGeneratorWordBytes);
      if ((graph.flags & kGraphIsChild) == 0) {
        check_.name("name", graph.name);
        check_.require(names.insert(file_.view(graph.name)).second, "another graph has the same name");
      }
      check_.range("nodes", graph.first_node, graph.node_count, Section::nodes, nodes_.size());
      check_.range("edges", graph.first_edge, graph.edge_count, Section::edges, edges_.size());
      count(nodes, graph.node_count, Section::nodes);
      count(edges, graph.edge_count, Section::edges);
      acyclic(i, graph);
    }
  }

  void acyclic(size_t number, const GraphRecord& graph) {
    const auto edges = edges_.subspan(graph.first_edge, graph.edge_count);
    waiting_.assign(graph.node_count, 0);
    first_.assign(size_t{graph.node_count} + 1, 0);
    for (size_t i = 0; i < edges.size(); ++i) {
      const EdgeRecord& edge = edges[i];
      if (edge.from >= graph.node_count || edge.to >= graph.node_count || edge.type > kLastEdgeType ||
          std::any_of(std::begin(edge.reserved), std::end(edge.reserved), [](uint8_t b) { return b != 0; })) {
        check_.at(Section::edges, graph.first_edge + i);
        check_.fail(
            format("in graph %zu with %u nodes: an edge from %u to %u of type %u, or a reserved field, is impossible",
                   number, graph.node_count, edge.from, edge.to, edge.type));
      }
      ++waiting_[edge.to];
      ++first_[edge.from + 1];
    }
    for (size_t n = 1; n < first_.size(); ++n) first_[n] += first_[n - 1];
    order_.resize(edges.size());
    next_.assign(first_.begin(), first_.end() - 1);
    for (const EdgeRecord& edge : edges) order_[next_[edge.from]++] = edge.to;
    ready_.clear();
    for (uint32_t n = 0; n < graph.node_count; ++n)
      if (waiting_[n] == 0) ready_.push_back(n);
    for (size_t done = 0; done < ready_.size(); ++done) {
      const uint32_t n = ready_[done];
      for (size_t e = first_[n]; e < first_[n + 1]; ++e)
        if (--waiting_[order_[e]] == 0) ready_.push_back(order_[e]);
    }
    check_.require(ready_.size() == graph.node_count, "its edges form a cycle");
  }

  // Child graphs: only graphs marked so, never themselves, and no explosion when all of them are expanded.
  void children() {
    expanded_.assign(graphs_.size(), 0);
    state_.assign(graphs_.size(), State::unknown);
    for (uint32_t i = 0; i < graphs_.size(); ++i) expand(i, 0);
  }

  uint64_t expand(uint32_t number, uint32_t depth) {
    if (state_[number] == State::known) return expanded_[number];
    check_.at(Section::graphs, number);
    check_.require(state_[number] == State::unknown, "it contains itself");
    check_.require(depth <= kDeepestChildGraph, "its child graphs are nested too deeply");
    state_[number] = State::open;
    const GraphRecord& graph = graphs_[number];
    uint64_t total = graph.node_count;
    for (const NodeRecord& node : nodes_.subspan(graph.first_node, graph.node_count)) {
      if (node.type != kNodeGraph) continue;
      total += expand(node.payload, depth + 1);
      check_.at(Section::graphs, number);
      check_.require((graphs_[node.payload].flags & kGraphIsChild) != 0, "it contains a graph that is no child graph");
      check_.require(total <= kMostExpandedNodes, "it has too many nodes, child graphs included");
    }
    state_[number] = State::known;
    return expanded_[number] = total;
  }

  void module_globals() {
    const size_t images = file_.section<Section::images>().size();
    const size_t content = file_.section<Section::global_content>().size();
    for (size_t i = 0; i < globals_.size(); ++i) {
      const ModuleGlobalRecord& global = globals_[i];
      check_.at(Section::module_globals, i);
      check_.name("symbol", global.symbol);
      check_.index("image", global.image, Section::images, images);
      check_.reserved(global.reserved);
      check_.require(global.bytes > 0, "it has no bytes");
      check_.addresses("address and bytes", global.address, global.bytes);
      if (global.content != kContentUnchanged) {
        check_.range("content", global.content, global.bytes, Section::global_content, content);
      }
    }
  }

  void pointers() {
    const auto pointers = file_.section<Section::pointers>();
    for (size_t i = 0; i < pointers.size(); ++i) {
      const PointerRecord& pointer = pointers[i];
      check_.at(Section::pointers, i);
      check_.index("graph", pointer.graph, Section::graphs, graphs_.size());
      const GraphRecord& graph = graphs_[pointer.graph];
      check_.index("node", pointer.node, Section::nodes, graph.node_count);
      const NodeRecord& node = nodes_[graph.first_node + pointer.node];
      if (node.type == kNodeKernel) {
        const FunctionRecord& function = functions_[kernels_[node.payload].function];
        if (pointer.param != kPointerWindow) {
          check_.index("param", pointer.param, Section::params, function.param_count);
          const ParamRecord& param = params_[function.first_param + pointer.param];
          check_.require(param.bytes >= 8 && pointer.offset <= param.bytes - 8, "the word lies outside its parameter");
        }
      } else {
        check_.require(
            (node.type == kNodeMemcpy && (pointer.param == kPointerSource || pointer.param == kPointerDestination)) ||
                (node.type == kNodeMemset && pointer.param == kPointerDestination),
            "its node has no such address");
      }
      check_.require(
          pointer.pointer_class >= 1 && pointer.pointer_class <= static_cast<uint32_t>(PointerClass::dangling),
          "its class is unknown");
      if (pointer.pointer_class == static_cast<uint32_t>(PointerClass::module_global)) {
        check_.index("target", pointer.target, Section::module_globals, globals_.size());
      }
      if (pointer.pointer_class == static_cast<uint32_t>(PointerClass::host) && pointer.target != kNone) {
        check_.index("target", pointer.target, Section::host_ranges, host_ranges_.size());
        const HostRangeRecord& range = host_ranges_[pointer.target];
        check_.require(pointer.value - range.address < range.bytes, "the word lies outside its host range");
      }
    }
  }

  enum class State : uint8_t { unknown, open, known };

  const File& file_;
  Checker check_;
  std::span<const FunctionRecord> functions_;
  std::span<const ParamRecord> params_;
  std::span<const GraphRecord> graphs_;
  std::span<const NodeRecord> nodes_;
  std::span<const KernelRecord> kernels_;
  std::span<const EdgeRecord> edges_;
  std::span<const ModuleGlobalRecord> globals_;
  std::span<const HostRangeRecord> host_ranges_;
  std::vector<uint32_t> params_end_;  // per function
  // Scratch of acyclic(), kept to allocate once.
  std::vector<uint32_t> waiting_, order_, ready_;
  std::vector<size_t> first_, next_;
  std::vector<uint64_t> expanded_;
  std::vector<State> state_;
};

}  // namespace

void validate_graphs(const File& file) { GraphsValidator(file).run(); }

}  // namespace foundry::archive
