#include "csrc/graph/audit.h"

#include "tests/unit/graph/fixture.h"
#include "tests/unit/graph/memory_fixture.h"

namespace foundry::graph::testing {
namespace {

using archive::PointerClass;
using archive::PointerRecord;

class AuditTest : public GraphTest {
 protected:
  AuditTest()
      : memory(memory_map(
            {range(kWeights, 0x1000, 1), range(kWeights + 0x2000, 0x1000, 2), range(kAmbient, 0x400, 3),
             range(kAmbient + 0x400, 0x400, 4), range(kAmbient + 0x1000, 0x200, 5, FOUNDRY_RANGE_QUARANTINED),
             range(kAmbient + 0x5000, 0x200, 6, FOUNDRY_RANGE_RELEASED)},
            {{kWeights, 0x1000, 70}})) {}

  AuditResult run() {
    AuditInput input;
    input.graphs = snapshot->tables().view();
    input.memory = &memory;
    input.host_ranges = host;
    input.relocatable_ranges = relocatable;
    input.origins = origins;
    auto result = audit(fake.table(), input);
    EXPECT_TRUE(result.ok()) << result.error().text;
    return result.ok() ? std::move(result).value() : AuditResult{};
  }
  // One graph with one kernel that takes a struct of these five words.
  AuditResult run(std::initializer_list<uint64_t> five) {
    CUgraph graph = new_graph();
    fake.add_kernel(graph, fake.kernel(math, kStruct), {words(five)});
    EXPECT_TRUE(snapshot->add(graph, "decode/" + std::to_string(snapshot->tables().graphs.size())).ok());
    return run();
  }
  static PointerClass class_of(const PointerRecord& pointer) {
    return static_cast<PointerClass>(pointer.pointer_class);
  }

  MemoryMap memory;
  std::vector<NamedRange> host, relocatable;
  const Origins* origins = nullptr;
};

TEST_F(AuditTest, ClassifiesEveryWordOfAStruct) {
  const AuditResult result = run({kWeights + 0x10, kAmbient + 0x20, 5, 0x3ff0000000000000, kAmbient + 0x1000});
  ASSERT_EQ(result.pointers.size(), 3u);
  EXPECT_EQ(class_of(result.pointers[0]), PointerClass::anchor);
  EXPECT_EQ(result.pointers[0].target, 70u);
  EXPECT_EQ(result.pointers[0].offset, 0u);
  EXPECT_EQ(class_of(result.pointers[1]), PointerClass::materialized);
  EXPECT_EQ(result.pointers[1].offset, 8u);
  EXPECT_EQ(class_of(result.pointers[2]), PointerClass::dangling);
  EXPECT_EQ(result.pointers[2].offset, 32u);
  EXPECT_EQ(result.roots, (std::vector<Root>{{0, 2}}));
  EXPECT_EQ(result.words, 5u);
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].kind, FindingKind::dangling);
  EXPECT_EQ(result.findings[0].pointer, 2u);
  EXPECT_CONTAINS(
      result.findings[0].text,
      "graph decode/0, node 0 (kernel pack(Pack)): the word at offset 32 of argument 0 is 0x140000001000, where "
      "nothing is allocated (inside allocation 5 (512 B at 0x140000001000 in zone ambient), which was freed)");
}

TEST_F(AuditTest, NamesTheNearestAllocationOfADanglingPointer) {
  AuditResult result = run({kAmbient + 0x1000 + 0x200 + 0x400, 0, 0, 0, 0});
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_CONTAINS(result.findings[0].text, "(1.00 KiB behind allocation 5 (512 B at 0x140000001000 in zone ambient))");
  result = run({kAmbient + 0x4000, 0, 0, 0, 0});
  EXPECT_CONTAINS(result.findings[1].text,
                  "(4.00 KiB in front of allocation 6 (512 B at 0x140000005000 in zone ambient))");
}

TEST_F(AuditTest, AWordForMemoryThatNeverExistedIsNoPointer) {
  // Strides of 524288 and 8192 in 32 bits each read as 0x200000080000.
  const AuditResult result =
      run({kAmbient + kUsedBytes, kWeights + kUsedBytes + 0x2345, kAmbient + kUsedBytes - 8, 0, 0});
  ASSERT_EQ(result.pointers.size(), 3u);
  EXPECT_EQ(class_of(result.pointers[0]), PointerClass::padding);
  EXPECT_EQ(class_of(result.pointers[1]), PointerClass::padding);
  EXPECT_EQ(class_of(result.pointers[2]), PointerClass::dangling);
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].pointer, 2u);
}

TEST_F(AuditTest, ARebuiltRangeNeedsAnAnchor) {
  const AuditResult result = run({kWeights + 0x2000, kWeights + 0x1000, 0, 0, 0});
  EXPECT_EQ(class_of(result.pointers[0]), PointerClass::rebuilt);
  EXPECT_EQ(class_of(result.pointers[1]), PointerClass::anchor);  // the end of the anchor's tensor
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].kind, FindingKind::unanchored);
  EXPECT_CONTAINS(result.findings[0].text,
                  "no registered tensor covers (inside allocation 2 (4.00 KiB at 0x100000002000 in "
                  "zone weights)); register the tensor");
  EXPECT_TRUE(result.roots.empty());
}

TEST_F(AuditTest, AsksTheDriverOnlyOncePerValueOutsideTheZones) {
  fake.pointer_types[0x7f0000001000] = CU_MEMORYTYPE_HOST;
  fake.pointer_types[0x7f0000002000] = CU_MEMORYTYPE_DEVICE;
  const AuditResult result = run({0x7f0000001000, 0x7f0000002000, 0x7f0000003000, 0x7f0000003000, 0x7f0000001000});
  EXPECT_EQ(result.asked, 3u);
  ASSERT_EQ(result.pointers.size(), 3u);  // what the driver does not know is padding or a number
  EXPECT_EQ(class_of(result.pointers[0]), PointerClass::host);
  EXPECT_EQ(result.pointers[0].target, kNone);
  EXPECT_EQ(class_of(result.pointers[1]), PointerClass::dangling);
  ASSERT_EQ(result.findings.size(), 3u);
  EXPECT_EQ(result.findings[0].kind, FindingKind::pinned_host);
  EXPECT_CONTAINS(result.findings[0].text, "is 0x7f0000001000, pinned host memory");
  EXPECT_EQ(result.findings[1].kind, FindingKind::unknown_device);
}

class NamedOrigins : public Origins {
 public:
  std::string of(const foundry_range& allocation) const override {
    return allocation.ordinal == 5 ? "grow (scratch.py:12); libscratch.so+0x40" : "";
  }
  std::string of_host(uint64_t address) const override { return address == 0x7f0000001000 ? "stage (io.py:3)" : ""; }
};

TEST_F(AuditTest, SentencesNameWhoMadeTheAllocation) {
  fake.pointer_types[0x7f0000001000] = CU_MEMORYTYPE_HOST;
  const NamedOrigins named;
  origins = &named;
  const AuditResult result = run({kAmbient + 0x1010, kAmbient + 0x5000, 0x7f0000001000, 0, 0});
  ASSERT_EQ(result.findings.size(), 3u);
  EXPECT_CONTAINS(result.findings[0].text,
                  "(inside allocation 5 (512 B at 0x140000001000 in zone ambient, made by grow (scratch.py:12); "
                  "libscratch.so+0x40), which was freed)");
  EXPECT_CONTAINS(result.findings[1].text, "in zone ambient), which was freed");  // nobody knows
  EXPECT_CONTAINS(result.findings[2].text, "pinned host memory, made by stage (io.py:3), which will not exist on LOAD");
}

TEST_F(AuditTest, RegisteredRangesAndModuleVariablesAreKnown) {
  host = {{0x7f0000001000, 0x1000, "staging"}};
  relocatable = {{0x7e0000000000, 0x100, "other"}, {kAmbient + 0x400, 0x100, "peer"}};
  GraphTables& t = snapshot->tables();
  CUgraph graph = new_graph();
  fake.add_kernel(graph, fake.kernel(math, kStruct),
                  {words({0x7f0000001800, kAmbient + 0x400, 0x7f1000000010, 0x7f1000000020, 0x7f0000002000})});
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  t.module_globals.push_back({{}, 0, 0, 0x20, UINT64_MAX, 0x7f1000000000});
  const AuditResult result = run();
  ASSERT_EQ(result.pointers.size(), 3u);
  EXPECT_EQ(class_of(result.pointers[0]), PointerClass::host);
  EXPECT_EQ(result.pointers[0].target, 0u);
  EXPECT_EQ(class_of(result.pointers[1]), PointerClass::relocatable);
  EXPECT_EQ(result.pointers[1].target, 1u);
  EXPECT_EQ(class_of(result.pointers[2]), PointerClass::module_global);
  EXPECT_TRUE(result.findings.empty());
  EXPECT_TRUE(result.roots.empty());
}

TEST_F(AuditTest, MemoryNodesAndWindowsReachAllTheyTouch) {
  CUgraph graph = new_graph();
  CUDA_MEMCPY3D& copy = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY)->copy;
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = kAmbient + 0x3f0;  // runs into the next block
  copy.dstDevice = kWeights;
  copy.WidthInBytes = 0x20;
  copy.Height = copy.Depth = 1;
  fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMSET)->set = {kAmbient + 0x5000, 0, 0, 4, 8, 1};
  auto& window = add_plain(graph)->attributes[CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW].accessPolicyWindow;
  window.base_ptr = reinterpret_cast<void*>(kAmbient + 0x100);
  window.num_bytes = 16;
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  const AuditResult result = run();
  ASSERT_EQ(result.pointers.size(), 4u);
  EXPECT_EQ(result.pointers[0].param, archive::kPointerSource);
  EXPECT_EQ(result.pointers[1].param, archive::kPointerDestination);
  EXPECT_EQ(class_of(result.pointers[1]), PointerClass::anchor);
  EXPECT_EQ(result.pointers[2].param, archive::kPointerDestination);
  EXPECT_EQ(result.pointers[3].param, archive::kPointerWindow);
  EXPECT_EQ(result.roots, (std::vector<Root>{{0, 2}, {0, 3}}));
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_CONTAINS(result.findings[0].text,
                  "graph a, node 1 (memset): its destination is 0x140000005000, where nothing is "
                  "allocated (inside allocation 6 (512 B at 0x140000005000 in zone ambient), which was freed)");
}

TEST_F(AuditTest, OnlyAlignedWordsWithinOneParameterCount) {
  // Parameters of 4 bytes at 8 and 12 look like an address together; a struct at offset 4 has its words at 8, 16.
  fake.images["odd"] = {{{"odd", {{{0, 4}, {4, 20}}, {}}}}, {}};
  CUlibrary library = fake.load("odd");
  hook.add_library(library);
  const auto low = static_cast<uint32_t>(kAmbient), high = static_cast<uint32_t>(kAmbient >> 32);
  CUgraph graph = new_graph();
  fake.add_kernel(graph, fake.kernel(math, kScale), {bytes_of(uint64_t{0}), bytes_of(low), bytes_of(high)});
  std::vector<uint8_t> inner(20);
  std::memcpy(inner.data() + 4, &kAmbient, 8);
  fake.add_kernel(graph, fake.kernel(library, "odd"), {bytes_of(1), inner});
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  const AuditResult result = run();
  ASSERT_EQ(result.pointers.size(), 1u);
  EXPECT_EQ(result.pointers[0].node, 1u);
  EXPECT_EQ(result.pointers[0].param, 1u);
  EXPECT_EQ(result.pointers[0].offset, 4u);
  fake.table().cuLibraryUnload(library);
}

TEST_F(AuditTest, FindingsOfChildGraphsNameTheGraphThatHoldsThem) {
  CUgraph graph = new_graph();
  add_plain(graph);
  FakeNode* node = fake.add_node(graph, CU_GRAPH_NODE_TYPE_GRAPH);
  node->child = std::make_unique<FakeGraph>();
  auto* inner = reinterpret_cast<CUgraph>(node->child.get());
  FakeNode* deeper = fake.add_node(inner, CU_GRAPH_NODE_TYPE_GRAPH);
  deeper->child = std::make_unique<FakeGraph>();
  add_scale(reinterpret_cast<CUgraph>(deeper->child.get()), kAmbient + 0x1000);
  add_scale(inner, kAmbient);
  ASSERT_EQ(snapshot->add(graph, "outer").value(), 2u);
  const AuditResult result = run();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].graph, 2u);
  EXPECT_EQ(result.pointers[result.findings[0].pointer].graph, 0u);
  EXPECT_CONTAINS(result.findings[0].text,
                  "graph outer, node 1 (child graph), node 0 (child graph), node 0 (kernel scale");
  EXPECT_EQ(result.roots, (std::vector<Root>{{2, 2}}));
}

TEST_F(AuditTest, EveryFindingIsListedAndTheFirstOfAGraphAreWorded) {
  for (const char* name : {"a", "b"}) {
    CUgraph graph = new_graph();
    for (uint32_t i = 0; i < kMostTextsPerGraph + 5; ++i) add_scale(graph, kAmbient + 0x1000);
    ASSERT_TRUE(snapshot->add(graph, name).ok());
  }
  const AuditResult result = run();
  ASSERT_EQ(result.findings.size(), 2u * (kMostTextsPerGraph + 5));
  EXPECT_EQ(result.pointers.size(), result.findings.size());
  for (size_t i = 0; i < result.findings.size(); ++i) {
    EXPECT_EQ(result.findings[i].text.empty(), i % (kMostTextsPerGraph + 5) >= kMostTextsPerGraph) << i;
  }
}

TEST_F(AuditTest, AFailingDriverIsAnError) {
  CUgraph graph = new_graph();
  add_scale(graph, 0x7f0000001000);
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  fake.failures["cuPointerGetAttributes"] = CUDA_ERROR_DEINITIALIZED;
  AuditInput input;
  input.graphs = snapshot->tables().view();
  input.memory = &memory;
  EXPECT_EQ(audit(fake.table(), input).error().kind, ErrorKind::driver);
}

}  // namespace
}  // namespace foundry::graph::testing
