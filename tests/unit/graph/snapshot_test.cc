#include "csrc/graph/node_attributes.h"
#include "csrc/graph/node_types.h"
#include "tests/unit/graph/fixture.h"

namespace foundry::graph::testing {
namespace {

using archive::ArgumentForm;

class SnapshotTest : public GraphTest {};

template <class T>
T argument(const GraphTables& tables, const archive::KernelRecord& kernel, size_t offset) {
  T value;
  std::memcpy(&value, tables.arguments.data() + kernel.arguments + offset, sizeof value);
  return value;
}

TEST_F(SnapshotTest, CopiesArgumentsAtTheirOffsets) {
  CUgraph graph = new_graph();
  FakeNode* node = add_scale(graph, 0x123456789abc, 2.5f, 7);
  node->launch.gridDimY = 4;
  node->launch.sharedMemBytes = 1024;
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  for (auto& bytes : node->arguments) std::fill(bytes.begin(), bytes.end(), uint8_t{0});  // the owner recycles them

  const GraphTables& t = snapshot->tables();
  ASSERT_EQ(t.kernels.size(), 1u);
  const archive::KernelRecord& kernel = t.kernels[0];
  EXPECT_EQ(kernel.argument_form, static_cast<uint32_t>(ArgumentForm::params));
  EXPECT_EQ(kernel.argument_bytes, 16u);
  EXPECT_EQ(argument<uint64_t>(t, kernel, 0), 0x123456789abcu);
  EXPECT_EQ(argument<float>(t, kernel, 8), 2.5f);
  EXPECT_EQ(argument<int>(t, kernel, 12), 7);
  EXPECT_EQ(kernel.grid[1], 4u);
  EXPECT_EQ(kernel.dynamic_shared_bytes, 1024u);
  EXPECT_EQ(t.view().text(t.functions[kernel.function].name), kScale);
  EXPECT_EQ(t.view().text(t.graphs[0].name), "a");
}

TEST_F(SnapshotTest, CopiesTheExtraForm) {
  CUgraph graph = new_graph();
  FakeNode* node = fake.add_kernel(graph, fake.kernel(math, kStruct), {});
  node->extra_buffer = words({1, 2, 3, 4, 5});
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  const archive::KernelRecord& kernel = snapshot->tables().kernels[0];
  EXPECT_EQ(kernel.argument_form, static_cast<uint32_t>(ArgumentForm::extra));
  EXPECT_EQ(kernel.argument_bytes, 40u);
  EXPECT_EQ(argument<uint64_t>(snapshot->tables(), kernel, 32), 5u);
}

TEST_F(SnapshotTest, RefusesAnExtraBufferThatIsTooShort) {
  CUgraph graph = new_graph();
  fake.add_kernel(graph, fake.kernel(math, kStruct), {})->extra_buffer = words({1, 2});
  EXPECT_CONTAINS(refusal(graph), "has 16 bytes where the kernel takes 40");
}

TEST_F(SnapshotTest, FindsOneFunctionBehindEveryKindOfHandle) {
  for (const Shown shown : {Shown::both, Shown::function, Shown::kernel, Shown::disguised_kernel}) {
    CUgraph graph = new_graph();
    add_scale(graph, 1, 1, 1, shown);
    const auto added = snapshot->add(graph, "g" + std::to_string(static_cast<int>(shown)));
    ASSERT_TRUE(added.ok()) << added.error().text;
  }
  EXPECT_EQ(snapshot->tables().functions.size(), 1u);
  EXPECT_EQ(snapshot->tables().images.size(), 1u);
  EXPECT_EQ(snapshot->image_ids(), std::vector<uint64_t>{0});
}

TEST_F(SnapshotTest, FindsImagesOfModules) {
  hook.images.clear();
  hook.add_module(&FakeDriver::of(math).module);
  CUgraph graph = new_graph();
  add_scale(graph, 1, 1, 1, Shown::function);
  EXPECT_TRUE(snapshot->add(graph, "a").ok());
}

TEST_F(SnapshotTest, RefusesAKernelWhoseImageNobodySaw) {
  hook.images.clear();
  CUgraph graph = new_graph();
  add_scale(graph);
  const std::string text = refusal(graph);
  EXPECT_CONTAINS(text, "graph decode/8, node 0 (kernel scale(float*, float, int)");
  EXPECT_CONTAINS(text, "foundry run --save");
}

TEST_F(SnapshotTest, ForgetsHandlesWhenAnImageIsUnloaded) {
  CUgraph first = new_graph();
  add_scale(first);
  ASSERT_TRUE(snapshot->add(first, "a").ok());
  // The same handles now belong to another load of the image.
  hook.images[0].loaded = 0;
  hook.add_library(math);
  CUgraph second = new_graph();
  add_scale(second);
  ASSERT_TRUE(snapshot->add(second, "b").ok());
  EXPECT_EQ(snapshot->image_ids(), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(snapshot->tables().functions.size(), 2u);
}

TEST_F(SnapshotTest, OnlyInvalidValueEndsTheParameterList) {
  fake.param_info_failures[kScale] = CUDA_ERROR_DEINITIALIZED;
  CUgraph graph = new_graph();
  add_scale(graph);
  EXPECT_CONTAINS(refusal(graph), "parameter 0 of kernel scale(float*, float, int): cuKernelGetParamInfo failed");
}

TEST_F(SnapshotTest, KeepsAttributesThatDifferFromTheDefault) {
  CUgraph graph = new_graph();
  FakeNode* node = add_plain(graph);
  node->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = -5;
  node->attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION].clusterDim = {2, 1, 1};
  node->attributes[CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP].memSyncDomainMap = {0, 1};         // the default
  node->attributes[CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW].accessPolicyWindow.hitRatio = 1;  // of no bytes
  // Asking for an attribute the driver does not know must not hide the others.
  fake.attribute_failures[CU_LAUNCH_ATTRIBUTE_COOPERATIVE] = CUDA_ERROR_INVALID_VALUE;
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  const auto& stored = snapshot->tables().launch_attributes;
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[0].id, static_cast<uint32_t>(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION));
  EXPECT_EQ(stored[1].id, static_cast<uint32_t>(CU_LAUNCH_ATTRIBUTE_PRIORITY));
  int priority = 0;
  std::memcpy(&priority, stored[1].value, sizeof priority);
  EXPECT_EQ(priority, -5);
  for (size_t i = sizeof priority; i < sizeof stored[1].value; ++i) EXPECT_EQ(stored[1].value[i], 0) << i;
}

TEST_F(SnapshotTest, DefaultsAreThoseOfANewNodeOnThisDriver) {
  fake.new_node_attributes[CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT].sharedMemCarveout = 30;
  CUgraph graph = new_graph();
  add_plain(graph);
  add_plain(graph)->attributes[CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT].sharedMemCarveout = 0;
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  const GraphTables& t = snapshot->tables();
  EXPECT_EQ(t.kernels[0].attribute_count, 0u);
  ASSERT_EQ(t.kernels[1].attribute_count, 1u);
  EXPECT_EQ(t.launch_attributes[0].value[0], 0);
}

TEST_F(SnapshotTest, ClusterSchedulingCountsOnlyWithClusters) {
  fake.images["cluster"] = {{{"k", {{}, {{CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2}}}}}, {}};
  CUlibrary library = fake.load("cluster");
  hook.add_library(library);
  CUgraph graph = new_graph();
  FakeNode* nodes[] = {add_plain(graph), add_plain(graph), fake.add_kernel(graph, fake.kernel(library, "k"), {})};
  for (FakeNode* node : nodes) {
    node->attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE].clusterSchedulingPolicyPreference =
        CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
  }
  nodes[1]->attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION].clusterDim = {1, 1, 1};
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  EXPECT_EQ(snapshot->tables().kernels[0].attribute_count, 0u);
  EXPECT_EQ(snapshot->tables().kernels[1].attribute_count, 2u);
  EXPECT_EQ(snapshot->tables().kernels[2].attribute_count, 1u);
  fake.table().cuLibraryUnload(library);
}

TEST_F(SnapshotTest, WithoutANewNodeTheTableSaysWhatIsDefault) {
  fake.failures["cuGraphAddKernelNode"] = CUDA_ERROR_INVALID_VALUE;
  CUgraph graph = new_graph();
  add_plain(graph)->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = 2;
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  ASSERT_EQ(snapshot->tables().launch_attributes.size(), 1u);
  EXPECT_EQ(snapshot->tables().launch_attributes[0].id, static_cast<uint32_t>(CU_LAUNCH_ATTRIBUTE_PRIORITY));
}

TEST_F(SnapshotTest, AnAttributeThatCannotBeReadIsAnError) {
  fake.attribute_failures[CU_LAUNCH_ATTRIBUTE_COOPERATIVE] = CUDA_ERROR_INVALID_HANDLE;
  CUgraph graph = new_graph();
  add_plain(graph);
  EXPECT_CONTAINS(refusal(graph), "launch attribute \"cooperative launch\"");
}

TEST_F(SnapshotTest, RefusesDeviceUpdatableNodes) {
  CUgraph graph = new_graph();
  add_plain(graph)
      ->attributes[CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE]
      .deviceUpdatableKernelNode.deviceUpdatable = 1;
  EXPECT_CONTAINS(refusal(graph), "\"device-updatable node\", which cannot be restored");
}

std::map<int, int> attributes_of(const GraphTables& t, const archive::FunctionRecord& function) {
  std::map<int, int> found;
  for (uint32_t i = 0; i < function.attribute_count; ++i) {
    const auto& record = t.function_attributes[function.first_attribute + i];
    found[record.attribute] = record.value;
  }
  return found;
}

TEST_F(SnapshotTest, SharedMemoryIsTheMaximumOverNodesAndFunction) {
  CUgraph small = new_graph();
  add_scale(small);
  ASSERT_TRUE(snapshot->add(small, "none").ok());
  EXPECT_TRUE(snapshot->tables().function_attributes.empty());

  CUgraph large = new_graph();
  add_scale(large)->launch.sharedMemBytes = 90000;
  add_scale(large)->launch.sharedMemBytes = 50000;
  add_plain(large);
  ASSERT_TRUE(snapshot->add(large, "large").ok());
  const GraphTables& t = snapshot->tables();
  EXPECT_EQ(attributes_of(t, t.functions[0]),
            (std::map<int, int>{{CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 90000}}));
  EXPECT_EQ(t.functions[1].attribute_count, 0u);
}

TEST_F(SnapshotTest, FunctionAttributesComeFromKernelOrFunction) {
  FakeKernel& kernel = FakeDriver::of(fake.kernel(math, kScale));
  kernel.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 100000;
  kernel.function.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 60000;
  kernel.function.attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] = 1;
  kernel.attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = 0;  // not the default, which is -1
  CUgraph graph = new_graph();
  add_scale(graph);
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  const GraphTables& t = snapshot->tables();
  EXPECT_EQ(attributes_of(t, t.functions[0]),
            (std::map<int, int>{{CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000},
                                {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0},
                                {CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1}}));
}

TEST_F(SnapshotTest, SharedMemoryAboveWhatStaticLeavesNeedsTheOptIn) {
  fake.images["static"] = {{{"k", {{}, {{CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 20000}}}}}, {}};
  CUlibrary library = fake.load("static");
  hook.add_library(library);
  CUgraph graph = new_graph();
  fake.add_kernel(graph, fake.kernel(library, "k"), {})->launch.sharedMemBytes = 40000;
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  ASSERT_EQ(snapshot->tables().function_attributes.size(), 1u);
  EXPECT_EQ(snapshot->tables().function_attributes[0].value, 40000);
  fake.table().cuLibraryUnload(library);
}

TEST_F(SnapshotTest, AFailedAddLeavesNoTrace) {
  CUgraph good = new_graph();
  add_plain(good);
  ASSERT_TRUE(snapshot->add(good, "good").ok());

  CUgraph bad = new_graph();
  FakeNode* first = add_scale(bad);
  first->launch.sharedMemBytes = 90000;
  FakeNode* event = fake.add_node(bad, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  event->event = new_event();
  FakeNode* host = fake.add_node(bad, CU_GRAPH_NODE_TYPE_HOST);
  fake.add_edge(bad, first, host);
  const GraphTables before = snapshot->tables();
  ASSERT_FALSE(snapshot->add(bad, "bad").ok());
  const GraphTables& after = snapshot->tables();
#define FOUNDRY_COMPARE(name, number, version, kind, record, most) \
  FOUNDRY_IF_##kind(EXPECT_EQ(after.view().name.size(), before.view().name.size()) << #name;)
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_COMPARE)
#undef FOUNDRY_COMPARE
  EXPECT_EQ(snapshot->image_ids().size(), 1u);

  // The same graph without the node is taken, with sound indices.
  FakeDriver::of(bad).nodes.pop_back();
  FakeDriver::of(bad).edges.clear();
  ASSERT_TRUE(snapshot->add(bad, "bad").ok());
  EXPECT_EQ(after.view().text(after.functions[after.kernels[1].function].name), kScale);
  EXPECT_EQ(after.functions[after.kernels[1].function].image, 1u);
  EXPECT_EQ(after.graph_events.size(), 1u);
}

TEST_F(SnapshotTest, RefusesNodeTypesByNameWithTheirNeighbours) {
  for (const uint32_t type : {3u, 8u, 9u, 10u, 11u, 12u, 13u, 77u}) {
    CUgraph graph = new_graph();
    FakeNode* before = add_scale(graph);
    FakeNode* empty = fake.add_node(graph, CU_GRAPH_NODE_TYPE_EMPTY);
    FakeNode* refused = fake.add_node(graph, static_cast<int>(type));
    FakeNode* after = add_plain(graph);
    fake.add_edge(graph, before, empty);
    fake.add_edge(graph, empty, refused);
    fake.add_edge(graph, refused, after);
    const NodeTypeInfo* info = node_type_info(type);
    const std::string text = refusal(graph);
    EXPECT_CONTAINS(text, std::string("graph decode/8, node 2 (") + (info ? info->words : "type 77") +
                              "; after kernel scale(float*, float, int) (node 0), before kernel plain() (node 3))");
  }
}

TEST_F(SnapshotTest, RefusesHostMemoryThatIsNotRegistered) {
  CUgraph graph = new_graph();
  FakeNode* copy = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY);
  copy->copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy->copy.srcHost = reinterpret_cast<void*>(0x7000);
  copy->copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy->copy.dstDevice = 0x100000000;
  copy->copy.WidthInBytes = 256;
  copy->copy.Height = copy->copy.Depth = 1;
  FakeNode* after = add_plain(graph);
  fake.add_edge(graph, copy, after);
  EXPECT_CONTAINS(refusal(graph),
                  "node 0 (memcpy; after no kernel, before kernel plain() (node 1)): it reads 256 B of "
                  "host memory at 0x7000");
  snapshot->register_host_range({0x7000, 255, "short"});
  EXPECT_CONTAINS(refusal(graph), "host memory");
  // The copy lies within a range, the address that LOAD would move does not.
  copy->copy.srcXInBytes = 0x2000;
  snapshot->register_host_range({0x9000, 0x1000, "behind"});
  EXPECT_CONTAINS(refusal(graph), "host memory at 0x9000");
  copy->copy.srcXInBytes = 0;
  snapshot->register_host_range({0x6000, 0x2000, "staging"});
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  EXPECT_EQ(snapshot->tables().memcpys[0].flags, static_cast<uint32_t>(archive::kSourceIsHost));
  EXPECT_EQ(snapshot->tables().memcpys[0].source, 0x7000u);
}

TEST_F(SnapshotTest, AsksWhereAUnifiedAddressLies) {
  fake.pointer_types[0x200000000] = CU_MEMORYTYPE_DEVICE;
  fake.pointer_types[0x7000] = CU_MEMORYTYPE_HOST;
  CUgraph graph = new_graph();
  FakeNode* copy = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY);
  copy->copy.srcMemoryType = copy->copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy->copy.srcDevice = copy->copy.dstDevice = 0x200000000;
  copy->copy.WidthInBytes = 8;
  copy->copy.Height = copy->copy.Depth = 1;
  EXPECT_TRUE(snapshot->add(graph, "a").ok());
  copy->copy.dstDevice = 0x7000;
  EXPECT_CONTAINS(refusal(graph), "it writes 8 B of host memory at 0x7000");
}

TEST_F(SnapshotTest, RefusesArrays) {
  CUgraph graph = new_graph();
  fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY)->copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_CONTAINS(refusal(graph), "it reads a CUDA array");
}

TEST_F(SnapshotTest, EventsHaveOneIdentityAcrossGraphs) {
  CUevent shared = new_event();
  CUevent other = new_event();
  snapshot->name_event(shared, "done", CU_EVENT_DISABLE_TIMING);
  for (const char* name : {"a", "b"}) {
    CUgraph graph = new_graph();
    fake.add_node(graph, CU_GRAPH_NODE_TYPE_WAIT_EVENT)->event = other;
    fake.add_node(graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD)->event = shared;
    ASSERT_TRUE(snapshot->add(graph, name).ok());
  }
  const GraphTables& t = snapshot->tables();
  ASSERT_EQ(t.graph_events.size(), 2u);
  EXPECT_EQ(t.view().text(t.graph_events[1].name), "done");
  EXPECT_EQ(t.graph_events[1].flags, static_cast<uint32_t>(CU_EVENT_DISABLE_TIMING));
  EXPECT_NE(t.graph_events[0].identity, t.graph_events[1].identity);
  EXPECT_EQ(t.nodes[0].payload, t.nodes[2].payload);
  EXPECT_EQ(t.nodes[1].payload, t.nodes[3].payload);
}

TEST_F(SnapshotTest, ReadsChildGraphsAndNamesTheWayToTheirNodes) {
  CUgraph graph = new_graph();
  FakeNode* node = fake.add_node(graph, CU_GRAPH_NODE_TYPE_GRAPH);
  node->child = std::make_unique<FakeGraph>();
  auto* inner = reinterpret_cast<CUgraph>(node->child.get());
  add_scale(inner);
  add_plain(graph);
  const auto index = snapshot->add(graph, "outer");
  ASSERT_TRUE(index.ok()) << index.error().text;
  const GraphTables& t = snapshot->tables();
  ASSERT_EQ(t.graphs.size(), 2u);
  EXPECT_EQ(index.value(), 1u);
  EXPECT_EQ(t.graphs[0].flags, static_cast<uint32_t>(archive::kGraphIsChild));
  EXPECT_EQ(t.graphs[0].name.bytes, 0u);
  EXPECT_EQ(t.graphs[1].node_count, 2u);
  EXPECT_EQ(t.nodes[t.graphs[1].first_node].payload, 0u);

  fake.add_node(inner, CU_GRAPH_NODE_TYPE_HOST);
  EXPECT_CONTAINS(refusal(graph), "graph decode/8, node 0 (child graph), node 1 (host function;");
}

TEST_F(SnapshotTest, RefusesEdgesOfANewerKind) {
  CUgraph graph = new_graph();
  FakeNode* first = add_plain(graph);
  fake.add_edge(graph, first, add_plain(graph));
  FakeDriver::of(graph).edges[0].data.reserved[0] = 1;
  EXPECT_CONTAINS(refusal(graph), "edge from node 0 to node 1 carries data of a newer CUDA version");
}

TEST_F(SnapshotTest, GraphNamesAreUniqueAndText) {
  CUgraph graph = new_graph();
  add_plain(graph);
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  EXPECT_CONTAINS(refusal(graph, "a"), "added before");
  EXPECT_CONTAINS(refusal(graph, ""), "needs a name");
  EXPECT_CONTAINS(refusal(graph, "\xff"), "needs a name");
}

}  // namespace
}  // namespace foundry::graph::testing
