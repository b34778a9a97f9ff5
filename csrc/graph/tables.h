// Captured graphs as data: one column per section of graphs.fdry while saving, one span per section while loading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/archive/strings.h"
#include "csrc/archive/table.h"

namespace foundry::archive {
class File;
}

namespace foundry::graph {

using archive::kNone;
using archive::StringRef;

namespace internal {

// FOUNDRY_IF_<file kind>(text): the text for sections of graphs.fdry, nothing for the others.
#define FOUNDRY_IF_graphs(...) __VA_ARGS__
#define FOUNDRY_IF_memory(...)
#define FOUNDRY_IF_journal(...)
#define FOUNDRY_IF_golden(...)

template <archive::Section S>
struct ColumnOf {
  using type = std::vector<archive::RecordOf<S>>;
};
template <>
struct ColumnOf<archive::Section::graphs_strings> {
  using type = archive::StringTable;
};

#define FOUNDRY_GRAPH_COLUMN(name, number, version, kind, record, most) \
  FOUNDRY_IF_##kind(ColumnOf<archive::Section::name>::type name;)
struct Columns {
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_COLUMN)
};
#undef FOUNDRY_GRAPH_COLUMN

#define FOUNDRY_GRAPH_SPAN(name, number, version, kind, record, most) \
  FOUNDRY_IF_##kind(std::span<const archive::RecordOf<archive::Section::name>> name;)
struct Spans {
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_SPAN)
};
#undef FOUNDRY_GRAPH_SPAN

}  // namespace internal

// The sections of graphs.fdry, read in place. Whoever owns the bytes keeps them alive longer than the view.
struct GraphView : internal::Spans {
  // Of an open file that archive::validate() accepted.
  static GraphView of(const archive::File& file);
  // Empty where the reference does not lie within the strings.
  std::string_view text(StringRef ref) const;
};

// The sections of graphs.fdry while a SAVE fills them; each goes to FileWriter::put as it is, `graphs_strings` becomes
// the writer's string table.
struct GraphTables : internal::Columns {
  GraphView view() const;

  // How many records each section has (strings apart), to undo what was added since.
  struct Mark {
#define FOUNDRY_GRAPH_SIZE(name, number, version, kind, record, most) FOUNDRY_IF_##kind(size_t name = 0;)
    FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_SIZE)
#undef FOUNDRY_GRAPH_SIZE
  };
  Mark mark() const;
  void roll_back(const Mark& mark);
};

}  // namespace foundry::graph
