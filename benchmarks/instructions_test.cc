// Parse, audit and placement at a fixed size, without a GPU. benchmarks/instructions.py counts the instructions of the
// functions named foundry_measured_*; as a test this only shows that they do what is to be counted.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/archive/reader.h"
#include "csrc/archive/validate.h"
#include "csrc/graph/audit.h"
#include "tests/unit/archive/support.h"
#include "tests/unit/graph/fixture.h"
#include "tests/unit/graph/memory_fixture.h"
#include "tests/unit/layout/fixture.h"

namespace {

namespace archive = foundry::archive;
namespace graph = foundry::graph;
namespace layout = foundry::layout;

struct Parse {
  int directory;
  std::optional<archive::File> file;
};
struct Audit {
  const foundry::driver::Driver& driver;
  graph::AuditInput input;
  graph::AuditResult result;
};
struct Placement {
  layout::Zones& zones;
  uint32_t slot;
  std::vector<foundry_expectation> expected;
  uint64_t used_end;
  std::vector<uint64_t> addresses;
};

}  // namespace

// As many instructions whatever the caller is: never inlined, found by name.
#define FOUNDRY_MEASURED extern "C" __attribute__((noinline, visibility("default")))

FOUNDRY_MEASURED bool foundry_measured_parse(Parse* parse) {
  auto opened = archive::File::open(parse->directory, "graphs.fdry", archive::FileKind::graphs);
  if (!opened.ok() || !archive::validate(opened.value()).ok()) return false;
  parse->file = std::move(opened).value();
  return true;
}

FOUNDRY_MEASURED bool foundry_measured_audit(Audit* audit) {
  auto result = graph::audit(audit->driver, audit->input);
  if (!result.ok()) return false;
  audit->result = std::move(result).value();
  return true;
}

FOUNDRY_MEASURED bool foundry_measured_placement(Placement* placement) {
  if (!placement->zones.expect(placement->slot, placement->expected, placement->used_end).ok()) return false;
  for (const foundry_expectation& one : placement->expected) {
    layout::AllocRequest request;
    request.bytes = one.bytes;
    const auto address = placement->zones.alloc(placement->slot, request);
    if (!address.ok()) return false;
    placement->addresses.push_back(address.value());
  }
  return true;
}

namespace {

TEST(InstructionsOfArchives, Parse) {
  constexpr size_t kGraphs = 2000;
  archive::test::TemporaryDirectory directory;
  archive::test::GraphsContent content;
  const archive::GraphRecord one = content.graphs[1];
  for (size_t i = content.graphs.size(); i < kGraphs; ++i) {
    content.graphs.push_back(one);
    content.graphs.back().name = content.strings.add("graph " + std::to_string(i));
  }
  content.write(directory.fd(), "graphs.fdry");
  Parse parse{directory.fd(), std::nullopt};
  ASSERT_TRUE(foundry_measured_parse(&parse));
  EXPECT_EQ(parse.file->section<archive::Section::graphs>().size(), kGraphs);
}

class Instructions : public graph::testing::GraphTest {};

TEST_F(Instructions, Audit) {
  constexpr size_t kGraphs = 500;
  using graph::testing::kAmbient;
  using graph::testing::kWeights;
  const graph::MemoryMap memory = graph::testing::memory_map(
      {graph::testing::range(kWeights, 0x10000, 1), graph::testing::range(kAmbient, 0x10000, 2)},
      {{kWeights, 0x10000, 7}});
  for (size_t i = 0; i < kGraphs; ++i) {
    CUgraph made = new_graph();
    const uint64_t at = i * 16;
    fake.add_kernel(
        made, fake.kernel(math, graph::testing::kStruct),
        {graph::testing::words({kWeights + at, kAmbient + at, 5, 0x3ff0000000000000, 0x7f0000001000 + at})});
    ASSERT_TRUE(snapshot->add(made, "decode/" + std::to_string(i)).ok());
  }
  Audit audit{fake.table(), {}, {}};
  audit.input.graphs = snapshot->tables().view();
  audit.input.memory = &memory;
  ASSERT_TRUE(foundry_measured_audit(&audit));
  EXPECT_EQ(audit.result.words, kGraphs * 5);
  EXPECT_EQ(audit.result.pointers.size(), kGraphs * 2);
}

class InstructionsOfZones : public layout::testing::ZonesTest {};

TEST_F(InstructionsOfZones, Placement) {
  constexpr uint64_t kAllocations = 1000, kBase = 0x200000000000, kBytes = 2 * layout::testing::kMiB;
  Placement placement{zones, open("weights", FOUNDRY_ZONE_REBUILT, 0, kBase, 16 * layout::testing::kGiB), {}, 0, {}};
  for (uint64_t i = 0; i < kAllocations; ++i) placement.expected.push_back({kBase + i * kBytes, kBytes - i % 7 * 512});
  placement.used_end = kBase + kAllocations * kBytes;
  ASSERT_TRUE(foundry_measured_placement(&placement));
  for (uint64_t i = 0; i < kAllocations; ++i) ASSERT_EQ(placement.addresses[i], kBase + i * kBytes);
}

}  // namespace
