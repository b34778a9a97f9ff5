#include "csrc/graph/snapshot.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include "csrc/archive/strings.h"
#include "csrc/base/text.h"
#include "csrc/graph/graph_reader.h"

namespace foundry::graph {

namespace {

// Room for many large graphs (67 of 380 nodes have 20 MB of arguments). Growing to it by doubling copies everything and
// takes a page fault for every 4 KiB two or three times over, which is half of the time that reading the graphs takes;
// memory that is never used is only promised, and comes in huge pages where the system gives them.
template <class T>
void reserve(std::vector<T>& column, size_t bytes) {
  column.reserve(bytes / sizeof(T));
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(column.data());
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  if (first < begin + bytes) madvise(reinterpret_cast<void*>(first), begin + bytes - first, MADV_HUGEPAGE);
}

}  // namespace

struct Snapshotter::State {
  State(const driver::Driver& used_driver, ImageResolver& images)
      : driver(used_driver), functions(used_driver, images, tables), attributes(used_driver, tables), events(tables) {
    reserve(tables.arguments, size_t{64} << 20);
    reserve(tables.kernels, size_t{8} << 20);
    reserve(tables.launch_attributes, size_t{8} << 20);
    reserve(tables.edges, size_t{4} << 20);
    reserve(tables.nodes, size_t{4} << 20);
  }

  const driver::Driver& driver;
  GraphTables tables;
  FunctionTable functions;
  LaunchAttributes attributes;
  EventTable events;
  std::vector<NamedRange> host_ranges;
};

Snapshotter::Snapshotter(const driver::Driver& driver, ImageResolver& images)
    : state_(std::make_unique<State>(driver, images)) {}
Snapshotter::~Snapshotter() = default;

Result<uint32_t> Snapshotter::add(CUgraph graph, std::string_view name) {
  State& s = *state_;
  const std::string text(name);
  if (text.empty() || !archive::is_text(text)) return Error{ErrorKind::invalid, 0, "a graph needs a name in UTF-8"};
  const GraphView before = s.tables.view();
  const bool used = std::any_of(before.graphs.begin(), before.graphs.end(),
                                [&](const archive::GraphRecord& record) { return before.text(record.name) == text; });
  if (used)
    return Error{ErrorKind::invalid, 0, format("graph %s was added before; graphs need different names", text.c_str())};

  const GraphTables::Mark mark = s.tables.mark();
  s.functions.refresh();
  Result<uint32_t> index = kNone;
  try {
    GraphReader reader(s.driver, s.tables, s.functions, s.attributes, s.events, s.host_ranges);
    index = reader.read(graph, "graph " + text, 0);
  } catch (const std::exception& failure) {
    index = Error{ErrorKind::out_of_memory, 0, format("graph %s was not read: %s", text.c_str(), failure.what())};
  }
  if (!index.ok()) {
    s.tables.roll_back(mark);
    s.functions.roll_back();
    s.attributes.roll_back();
    s.events.roll_back();
    return index;
  }
  s.functions.commit(mark.kernels);
  s.events.commit();
  s.tables.graphs[index.value()].name = s.tables.graphs_strings.add(text);
  return index;
}

void Snapshotter::register_host_range(NamedRange range) { state_->host_ranges.push_back(std::move(range)); }
const std::vector<NamedRange>& Snapshotter::host_ranges() const { return state_->host_ranges; }

bool Snapshotter::name_event(CUevent event, std::string_view name, uint32_t flags) {
  return state_->events.name(event, std::string(name), flags);
}

GraphTables& Snapshotter::tables() { return state_->tables; }
const GraphTables& Snapshotter::tables() const { return state_->tables; }
const std::vector<uint64_t>& Snapshotter::image_ids() const { return state_->functions.image_ids(); }

}  // namespace foundry::graph
