#include "csrc/graph/tables.h"

namespace foundry::graph {

std::string_view GraphView::text(StringRef ref) const {
  if (ref.offset > graphs_strings.size() || ref.bytes > graphs_strings.size() - ref.offset) return {};
  return {reinterpret_cast<const char*>(graphs_strings.data()) + ref.offset, ref.bytes};
}

StringRef GraphTables::intern(std::string_view text) {
  if (text.empty()) return StringRef{0, 0};
  const auto found = interned_.find(std::string(text));
  if (found != interned_.end()) return found->second;
  const StringRef ref{static_cast<uint32_t>(graphs_strings.size()), static_cast<uint32_t>(text.size())};
  graphs_strings.insert(graphs_strings.end(), text.begin(), text.end());
  interned_.emplace(std::string(text), ref);
  return ref;
}

#define FOUNDRY_GRAPH_MEMBER(name, number, version, kind, record, limit) FOUNDRY_GRAPH_SECTION_(kind, name, record)

GraphView GraphTables::view() const {
  GraphView view;
#define FOUNDRY_GRAPH_SECTION_graphs(name, record) view.name = name;
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_MEMBER)
#undef FOUNDRY_GRAPH_SECTION_graphs
  return view;
}

GraphTables::Mark GraphTables::mark() const {
  Mark mark{};
#define FOUNDRY_GRAPH_SECTION_graphs(name, record) mark.name = name.size();
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_MEMBER)
#undef FOUNDRY_GRAPH_SECTION_graphs
  return mark;
}

void GraphTables::roll_back(const Mark& mark) {
#define FOUNDRY_GRAPH_SECTION_graphs(name, record) name.resize(mark.name);
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_MEMBER)
#undef FOUNDRY_GRAPH_SECTION_graphs
  boost::unordered::erase_if(interned_, [&](const auto& entry) { return entry.second.offset >= mark.graphs_strings; });
}

}  // namespace foundry::graph
