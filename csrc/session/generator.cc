// Where a graph's kernels read the random generator's seed and offset.
#include <set>

#include "csrc/base/text.h"
#include "csrc/layout/range_map.h"
#include "csrc/session/graph_walk.h"
#include "csrc/session/saver.h"

namespace foundry::session {
namespace {

// Distinct 8-byte words in the arguments of a graph's kernels.
std::set<uint64_t> argument_words(const graph::GraphView& view, uint32_t graph) {
  std::set<uint64_t> words;
  walk_kernels(view, graph, [&](const archive::KernelRecord& kernel) {
    for (uint64_t at = 0; at + 8 <= kernel.argument_bytes; at += 8) {
      uint64_t word = 0;
      __builtin_memcpy(&word, view.arguments.data() + kernel.arguments + at, sizeof word);
      words.insert(word);
    }
  });
  return words;
}

}  // namespace

Status Saver::set_generator(uint32_t graph, uint64_t increment, uint64_t seed, uint64_t offset) {
  graph::GraphTables& tables = snapshotter_.tables();
  if (graph >= tables.graphs.size() || seed == offset) {
    return Error{ErrorKind::invalid, 0, "a generator needs a graph that was added, and two values that differ"};
  }
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_ASSIGN(const layout::RangeMap ranges, layout::RangeMap::of(process_.abi()));
  const std::set<uint64_t> words = argument_words(tables.view(), graph);
  std::set<uint64_t> seeds;
  std::set<uint64_t> offsets;
  for (const uint64_t word : words) {
    if (word % sizeof(uint64_t) != 0) continue;
    const auto range = ranges.find(word);
    if (!range || ranges[*range].state != FOUNDRY_RANGE_LIVE) continue;
    uint64_t value = 0;
    FOUNDRY_CU(process_.driver(), cuMemcpyDtoH, &value, word, sizeof value);
    if (value == seed) seeds.insert(word);
    if (value == offset) offsets.insert(word);
  }
  if (seeds.size() != 1 || offsets.size() != 1) {
    return Error{
        ErrorKind::unsupported, 0,
        format("it draws random numbers, but the words that its kernels read seed and offset from cannot be told: "
               "%zu words hold the seed and %zu the offset among %zu addresses in its arguments",
               seeds.size(), offsets.size(), words.size())};
  }
  archive::GraphRecord& record = tables.graphs[graph];
  record.flags |= archive::kGraphUsesGenerator;
  record.generator_increment = increment;
  record.generator_seed = *seeds.begin();
  record.generator_offset = *offsets.begin();
  return success();
}

}  // namespace foundry::session
