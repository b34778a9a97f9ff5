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

// Device memory that a copy can read, wherever it was allocated.
bool readable(const driver::Driver& driver, uint64_t address) {
  unsigned int type = 0;
  int mapped = 0;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MAPPED};
  void* values[] = {&type, &mapped};
  return driver.cuPointerGetAttributes(2, which, values, address) == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE &&
         mapped != 0;
}

// Words in the arguments that hold a value: those in memory that LOAD gives back, and the others.
struct Words {
  std::set<uint64_t> kept;
  std::set<uint64_t> elsewhere;

  void add(uint64_t address, bool live) { (live ? kept : elsewhere).insert(address); }
};

std::string unusable(const layout::RangeMap& ranges, const char* what, const Words& words) {
  if (!words.kept.empty() || words.elsewhere.empty()) return "";
  const uint64_t address = *words.elsewhere.begin();
  const auto range = ranges.find(address);
  return format(
      "; the %s is at %s, %s", what, hex(address).c_str(),
      range ? format("in allocation %llu, which was freed", static_cast<unsigned long long>(ranges[*range].ordinal))
                  .c_str()
            : "which the hook did not place: it was allocated before Foundry's hook worked, or by a call that "
              "`foundry doctor` and FOUNDRY_LOG=1 tell about");
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
  Words seeds;
  Words offsets;
  for (const uint64_t word : words) {
    if (word % sizeof(uint64_t) != 0) continue;
    const auto range = ranges.find(word);
    const bool live = range && ranges[*range].state == FOUNDRY_RANGE_LIVE;
    if (!live && !readable(process_.driver(), word)) continue;
    uint64_t value = 0;
    FOUNDRY_CU(process_.driver(), cuMemcpyDtoH, &value, word, sizeof value);
    if (value == seed) seeds.add(word, live);
    if (value == offset) offsets.add(word, live);
  }
  if (seeds.kept.size() != 1 || offsets.kept.size() != 1) {
    return Error{
        ErrorKind::unsupported, 0,
        format("it draws random numbers, but the words that its kernels read seed and offset from cannot be told: "
               "%zu words hold the seed and %zu the offset among %zu addresses in its arguments%s%s",
               seeds.kept.size(), offsets.kept.size(), words.size(), unusable(ranges, "seed", seeds).c_str(),
               unusable(ranges, "offset", offsets).c_str())};
  }
  archive::GraphRecord& record = tables.graphs[graph];
  record.flags |= archive::kGraphUsesGenerator;
  record.generator_increment = increment;
  record.generator_seed = *seeds.kept.begin();
  record.generator_offset = *offsets.kept.begin();
  return success();
}

}  // namespace foundry::session
