// Captured graphs as data: one vector per section of graphs.fdry while saving, one span per section while loading.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/archive/records.h"

namespace foundry::graph {

using archive::kNone;
using archive::StringRef;

namespace sections {
// Makes the record names of the section table, and `blob`, usable as types.
using namespace foundry::archive;  // NOLINT(google-build-using-namespace)
using blob = uint8_t;

#define FOUNDRY_GRAPH_SECTION_(kind, ...) FOUNDRY_GRAPH_SECTION_##kind(__VA_ARGS__)
#define FOUNDRY_GRAPH_SECTION_memory(...)
#define FOUNDRY_GRAPH_SECTION_journal(...)
#define FOUNDRY_GRAPH_SECTION_golden(...)

#define FOUNDRY_GRAPH_SECTION_graphs(name, record) std::vector<record> name;
#define FOUNDRY_GRAPH_MEMBER(name, number, version, kind, record, limit) FOUNDRY_GRAPH_SECTION_(kind, name, record)
struct Vectors {
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_MEMBER)
};
#undef FOUNDRY_GRAPH_SECTION_graphs

#define FOUNDRY_GRAPH_SECTION_graphs(name, record) std::span<const record> name;
struct Spans {
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_MEMBER)
};
#undef FOUNDRY_GRAPH_SECTION_graphs
#undef FOUNDRY_GRAPH_MEMBER
}  // namespace sections

// The sections of graphs.fdry, read in place. Whoever owns the bytes keeps them alive longer than the view.
struct GraphView : sections::Spans {
  // Empty where the reference does not lie within the strings.
  std::string_view text(StringRef ref) const;
};

// The sections of graphs.fdry while a SAVE fills them.
class GraphTables : public sections::Vectors {
 public:
  // Equal strings are stored once.
  StringRef intern(std::string_view text);
  GraphView view() const;

  // Sizes of all sections, so that an operation that fails can leave the tables as they were.
  struct Mark {
#define FOUNDRY_GRAPH_SECTION_graphs(name, record) size_t name;
#define FOUNDRY_GRAPH_MEMBER(name, number, version, kind, record, limit) FOUNDRY_GRAPH_SECTION_(kind, name, record)
    FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_GRAPH_MEMBER)
#undef FOUNDRY_GRAPH_MEMBER
#undef FOUNDRY_GRAPH_SECTION_graphs
  };
  Mark mark() const;
  void roll_back(const Mark& mark);

 private:
  boost::unordered_flat_map<std::string, StringRef> interned_;
};

}  // namespace foundry::graph
