#include "csrc/graph/tables.h"

#include "csrc/archive/reader.h"

namespace foundry::graph {
namespace {

template <class T>
std::span<const T> span_of(const std::vector<T>& column) {
  return column;
}
std::span<const std::byte> span_of(const archive::StringTable& strings) { return strings.bytes(); }

template <class T>
void shrink(std::vector<T>& column, size_t size) {
  column.erase(column.begin() + static_cast<std::ptrdiff_t>(size), column.end());
}
void shrink(archive::StringTable&, size_t) {}  // strings are added last, by what cannot fail any more

}  // namespace

GraphView GraphView::of(const archive::File& file) {
  GraphView view;
#define FOUNDRY_GRAPH_READ(name, number, version, kind, record, most) \
  FOUNDRY_IF_##kind(view.name = file.section<archive::Section::name>();)
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_READ)
#undef FOUNDRY_GRAPH_READ
  return view;
}

std::string_view GraphView::text(StringRef ref) const {
  if (ref.offset > graphs_strings.size() || ref.bytes > graphs_strings.size() - ref.offset) return {};
  return {reinterpret_cast<const char*>(graphs_strings.data()) + ref.offset, ref.bytes};
}

GraphView GraphTables::view() const {
  GraphView view;
#define FOUNDRY_GRAPH_VIEW(name, number, version, kind, record, most) FOUNDRY_IF_##kind(view.name = span_of(name);)
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_VIEW)
#undef FOUNDRY_GRAPH_VIEW
  return view;
}

GraphTables::Mark GraphTables::mark() const {
  Mark mark;
#define FOUNDRY_GRAPH_MARK(name, number, version, kind, record, most) \
  FOUNDRY_IF_##kind(mark.name = span_of(name).size();)
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_MARK)
#undef FOUNDRY_GRAPH_MARK
  return mark;
}

void GraphTables::roll_back(const Mark& mark) {
#define FOUNDRY_GRAPH_UNDO(name, number, version, kind, record, most) FOUNDRY_IF_##kind(shrink(name, mark.name);)
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_UNDO)
#undef FOUNDRY_GRAPH_UNDO
}

}  // namespace foundry::graph
