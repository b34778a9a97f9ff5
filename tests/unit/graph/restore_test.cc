#include <pthread.h>

#include <algorithm>

#include "tests/unit/graph/fixture.h"

namespace foundry::graph::testing {
namespace {

using archive::PointerClass;

class RestoreTest : public GraphTest {};

TEST_F(RestoreTest, KernelNodesComeBackAsTheyWere) {
  CUgraph graph = new_graph();
  FakeNode* scale = add_scale(graph, 0xabcdef0123, 1.5f, 9);
  scale->launch.gridDimX = 17;
  scale->launch.sharedMemBytes = 70000;
  scale->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = -3;
  FakeNode* pack = fake.add_kernel(graph, fake.kernel(math, kStruct), {});
  pack->extra_buffer = words({1, 2, 3, 4, 5});
  fake.add_edge(graph, scale, pack);

  const FakeGraph& restored = round_trip(graph);
  ASSERT_EQ(restored.nodes.size(), 2u);
  EXPECT_EQ(restored.nodes[0]->kernel->name, kScale);
  EXPECT_NE(restored.nodes[0]->kernel->library, &FakeDriver::of(math));  // from the archive's image
  EXPECT_TRUE(restored.nodes[0]->kernel->library->preserved);
  EXPECT_EQ(restored.nodes[0]->arguments, scale->arguments);
  EXPECT_EQ(restored.nodes[0]->launch.gridDimX, 17u);
  EXPECT_EQ(restored.nodes[0]->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority, -3);
  EXPECT_EQ(restored.nodes[1]->extra_buffer, pack->extra_buffer);
  EXPECT_EQ(restored.edges.size(), 1u);
  EXPECT_EQ(FakeDriver::of(restorer->ready(0)).flags, 9u);
}

TEST_F(RestoreTest, EdgesOfDifferentKindsKeepTheirData) {
  CUgraph graph = new_graph();
  std::vector<FakeNode*> nodes;
  for (int i = 0; i < 6; ++i) nodes.push_back(add_plain(graph));
  fake.add_edge(graph, nodes[0], nodes[1]);
  fake.add_edge(graph, nodes[1], nodes[2], CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  fake.add_edge(graph, nodes[2], nodes[3]);
  fake.add_edge(graph, nodes[3], nodes[4], CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER,
                CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  fake.add_edge(graph, nodes[4], nodes[5], CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  const FakeGraph& restored = round_trip(graph);
  ASSERT_EQ(restored.edges.size(), 5u);
  for (const FakeEdge& edge : FakeDriver::of(graph).edges) {
    const auto same = std::find_if(restored.edges.begin(), restored.edges.end(), [&](const FakeEdge& other) {
      return other.from == edge.from && other.to == edge.to;
    });
    ASSERT_NE(same, restored.edges.end());
    EXPECT_EQ(same->data.from_port, edge.data.from_port) << edge.from;
    EXPECT_EQ(same->data.type, edge.data.type) << edge.from;
  }
}

TEST_F(RestoreTest, MemoryNodesComeBackAsTheyWere) {
  CUgraph graph = new_graph();
  CUDA_MEMCPY3D& copy = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY)->copy;
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = 0x300000000;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = 0x100000000;
  copy.srcXInBytes = 4;
  copy.srcPitch = 64;
  copy.dstPitch = 128;
  copy.WidthInBytes = 32;
  copy.Height = 3;
  copy.Depth = 1;
  CUDA_MEMSET_NODE_PARAMS& set = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMSET)->set;
  set = {0x200000000, 256, 0xdeadbeef, 4, 10, 5};
  fake.add_node(graph, CU_GRAPH_NODE_TYPE_EMPTY);
  const FakeGraph& restored = round_trip(graph);
  EXPECT_EQ(std::memcmp(&restored.nodes[0]->copy, &copy, sizeof copy), 0);
  EXPECT_EQ(std::memcmp(&restored.nodes[1]->set, &set, sizeof set), 0);
  EXPECT_EQ(restored.nodes[2]->type, CU_GRAPH_NODE_TYPE_EMPTY);
}

class HostRangeTest : public RestoreTest {
 protected:
  // A copy from host memory at 0x5010, and a kernel that gets 0x5020; then a graph without either.
  void SetUp() override {
    snapshot->register_host_range({0x5000, 0x1000, "staging"});
    CUgraph graph = new_graph();
    CUDA_MEMCPY3D& copy = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY)->copy;
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = reinterpret_cast<void*>(0x5010);
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = 0x100000000;
    copy.WidthInBytes = 32;
    copy.Height = copy.Depth = 1;
    add_scale(graph, 0x5020);
    ASSERT_TRUE(snapshot->add(graph, "host").ok());
    GraphTables& tables = snapshot->tables();
    tables.host_ranges = {{tables.graphs_strings.add("staging"), 0x5000, 0x1000}};
    const auto host = static_cast<uint32_t>(PointerClass::host);
    tables.pointers = {{0x5010, 0, 0, archive::kPointerSource, 0, host, 0}, {0x5020, 0, 1, 0, 0, host, 0}};
    CUgraph other = new_graph();
    add_plain(other);
    ASSERT_TRUE(snapshot->add(other, "other").ok());
  }
  void start() {
    RestoreOptions with = options({0, 1});
    with.held = graphs_with_copies(snapshot->tables().view(), with.order, {});
    EXPECT_EQ(with.held, std::vector<uint32_t>{0});
    restorer = restore(with);
  }
};

TEST_F(HostRangeTest, AddressesMoveWithTheirRange) {
  start();
  restorer->place_host(0, int64_t{-0x2000});
  restorer->release();
  const auto exec = restorer->wait(0);
  ASSERT_TRUE(exec.ok()) << exec.error().text;
  const FakeGraph& restored = *FakeDriver::of(exec.value()).graph;
  EXPECT_EQ(restored.nodes[0]->copy.srcHost, reinterpret_cast<void*>(0x3010));
  EXPECT_EQ(restored.nodes[0]->copy.dstDevice, 0x100000000u);
  EXPECT_EQ(restored.nodes[1]->arguments[0], bytes_of(uint64_t{0x3020}));
}

TEST_F(HostRangeTest, AGraphWhoseRangeIsMissingFailsAlone) {
  start();
  restorer->release();
  EXPECT_TRUE(restorer->wait(1).ok());
  const auto exec = restorer->wait(0);
  ASSERT_FALSE(exec.ok());
  EXPECT_EQ(exec.error().kind, ErrorKind::mismatch);
  EXPECT_CONTAINS(exec.error().text, "graph host, node 0 (memcpy): host memory 'staging' was not registered");
}

TEST_F(HostRangeTest, WhatIsWrongWithTheMemoryIsTheErrorOfTheGraph) {
  start();
  restorer->place_host(0, Error{ErrorKind::mismatch, 0, "host memory 'staging' is too small"});
  restorer->release();
  EXPECT_CONTAINS(restorer->wait(0).error().text, "(memcpy): host memory 'staging' is too small");
}

TEST_F(HostRangeTest, KernelsAloneWaitForTheirRangeToo) {
  GraphTables& tables = snapshot->tables();
  CUgraph child = new_graph();
  FakeNode* node = fake.add_node(child, CU_GRAPH_NODE_TYPE_GRAPH);
  node->child = std::make_unique<FakeGraph>();
  add_scale(reinterpret_cast<CUgraph>(node->child.get()), 0x5030);
  const uint32_t outer = snapshot->add(child, "outer").value();
  tables.pointers.push_back({0x5030, outer - 1, 0, 0, 0, static_cast<uint32_t>(PointerClass::host), 0});
  EXPECT_EQ(graphs_with_copies(tables.view(), std::vector<uint32_t>{1, outer}, {}), std::vector<uint32_t>{outer});
}

// What the system lacks is no matter of the archive's files: those are saved anew for that.
TEST_F(RestoreTest, WithoutThreadsTheArchiveIsNotToBlame) {
  CUgraph graph = new_graph();
  add_plain(graph);
  const uint32_t index = snapshot->add(graph, "g").value();
  pthread_attr_t before;
  pthread_attr_t huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 60), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const auto started = Restorer::start(fake.table(), snapshot->tables().view(), provider(), options({index}));
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().kind, ErrorKind::out_of_memory);
  EXPECT_CONTAINS(started.error().text, "no threads to restore graphs with");
}

// Files that validate() accepts, but that SAVE does not write.
TEST_F(HostRangeTest, HostAddressesWithoutARangeAreDamage) {
  snapshot->tables().pointers[1].target = kNone;
  start();
  restorer->place_host(0, int64_t{0});
  restorer->release();
  EXPECT_EQ(restorer->wait(0).error().kind, ErrorKind::corrupt);
  EXPECT_CONTAINS(restorer->wait(0).error().text, "host address 0x5020 belongs to no host range");
  restorer.reset();
  snapshot->tables().pointers.erase(snapshot->tables().pointers.begin());
  RestoreOptions with = options({0});
  with.held = {0};
  restorer = restore(with);
  restorer->place_host(0, int64_t{0});
  restorer->release();
  EXPECT_CONTAINS(restorer->wait(0).error().text, "the archive does not say which host range it uses");
}

TEST_F(RestoreTest, ChildGraphsComeBack) {
  CUgraph graph = new_graph();
  FakeNode* node = fake.add_node(graph, CU_GRAPH_NODE_TYPE_GRAPH);
  node->child = std::make_unique<FakeGraph>();
  add_scale(reinterpret_cast<CUgraph>(node->child.get()), 77);
  const FakeGraph& restored = round_trip(graph);
  ASSERT_EQ(restored.nodes.size(), 1u);
  ASSERT_NE(restored.nodes[0]->child, nullptr);
  EXPECT_EQ(restored.nodes[0]->child->nodes[0]->arguments[0], bytes_of(uint64_t{77}));
}

TEST_F(RestoreTest, OneEventPerIdentityOverAllGraphs) {
  CUevent shared = new_event();
  snapshot->name_event(shared, "done", CU_EVENT_DISABLE_TIMING);
  std::vector<uint32_t> indices;
  for (const char* name : {"a", "b"}) {
    CUgraph graph = new_graph();
    fake.add_node(graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD)->event = shared;
    indices.push_back(snapshot->add(graph, name).value());
  }
  restorer = restore(options(indices));
  ASSERT_TRUE(restorer->wait_all().ok());
  const CUevent event = restorer->event("done").value();
  EXPECT_NE(event, shared);
  for (const uint32_t index : indices) {
    EXPECT_EQ(FakeDriver::of(restorer->ready(index)).graph->nodes[0]->event, event);
  }
  EXPECT_FALSE(restorer->event("other").ok());
  EXPECT_FALSE(restorer->event("").ok());
}

TEST_F(RestoreTest, AttributesAreSetBeforeTheFirstNodeOnKernelAndFunction) {
  CUgraph first = new_graph();
  add_scale(first)->launch.sharedMemBytes = 1000;
  CUgraph second = new_graph();
  add_scale(second)->launch.sharedMemBytes = 90000;  // the fake refuses nodes above the function's maximum
  const uint32_t a = snapshot->add(first, "a").value();
  const uint32_t b = snapshot->add(second, "b").value();
  restorer = restore(options({a, b}));
  ASSERT_TRUE(restorer->wait_all().ok()) << restorer->wait_all().error().text;
  FakeKernel* kernel = FakeDriver::of(restorer->ready(a)).graph->nodes[0]->kernel;
  EXPECT_EQ(kernel->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES], 90000);
  EXPECT_EQ(kernel->function.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES], 90000);
  EXPECT_EQ(fake.calls(std::string("get ") + kScale).size(), 3u);  // twice by this test, once for both graphs
}

TEST_F(RestoreTest, ClusterSizesFixedByTheCompilerAreNoError) {
  fake.images["cluster"] = {{{"k",
                              {{},
                               {{CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2},
                                {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1},
                                {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1}}}}},
                            {}};
  CUlibrary library = fake.load("cluster");
  hook.add_library(library);
  CUgraph graph = new_graph();
  fake.add_kernel(graph, fake.kernel(library, "k"), {});
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  EXPECT_EQ(snapshot->tables().function_attributes.size(), 3u);
  restorer = restore(options({0}));
  EXPECT_TRUE(restorer->wait(0).ok());
  restorer.reset();
  fake.table().cuLibraryUnload(library);
}

TEST_F(RestoreTest, AParameterLayoutThatDiffersIsNamed) {
  add_graphs(1);
  fake.images["math"].functions[kScale].params[1].bytes = 8;
  restorer = restore(options({0}));
  const auto exec = restorer->wait(0);
  ASSERT_FALSE(exec.ok());
  EXPECT_EQ(exec.error().kind, ErrorKind::mismatch);
  EXPECT_CONTAINS(exec.error().text,
                  "graph 0, node 0 (kernel scale(float*, float, int)): its parameter 1 was recorded at "
                  "offset 8 with 4 bytes; here it has offset 8 and 8 bytes");
  fake.images["math"].functions[kScale].params = {{0, 8}};
  restorer.reset();
  restorer = restore(options({0}));
  EXPECT_CONTAINS(restorer->wait(0).error().text, "here it does not exist");
  fake.images["math"].functions[kScale].params = {{0, 8}, {8, 4}, {12, 4}, {16, 4}};
  restorer.reset();
  restorer = restore(options({0}));
  EXPECT_CONTAINS(restorer->wait(0).error().text, "more than the 3 parameters recorded");
}

TEST_F(RestoreTest, AFailedImageFailsOnlyItsGraphs) {
  const std::vector<uint32_t> indices = add_graphs(2);
  CUgraph plain = new_graph();
  add_plain(plain);
  const uint32_t healthy = snapshot->add(plain, "plain").value();
  const auto healthy_images = provider();
  RestoreOptions with = options({indices[0], healthy, indices[1]});
  auto started = Restorer::start(
      fake.table(), snapshot->tables().view(),
      [&](uint32_t index) -> Result<ImageBytes> {
        if (index == 0) return Error{ErrorKind::corrupt, 0, "file images/00 is damaged"};
        return healthy_images(index);
      },
      with);
  restorer = std::move(started).value();
  EXPECT_TRUE(restorer->wait(healthy).ok());
  for (const uint32_t index : indices) {
    const auto exec = restorer->wait(index);
    ASSERT_FALSE(exec.ok());
    EXPECT_EQ(exec.error().kind, ErrorKind::corrupt);
    EXPECT_CONTAINS(exec.error().text, "graph " + std::to_string(index));
    EXPECT_CONTAINS(exec.error().text, "images/00 is damaged");
    EXPECT_EQ(restorer->ready(index), nullptr);
  }
  EXPECT_CONTAINS(restorer->wait_all().error().text, "graph 0");
  EXPECT_EQ(restorer->stats().graphs_failed, 2u);
  EXPECT_EQ(restorer->stats().graphs_ready, 1u);
}

TEST_F(RestoreTest, EveryFailingCallFailsTheGraph) {
  CUgraph graph = new_graph();
  FakeNode* node = add_scale(graph);
  node->launch.sharedMemBytes = 90000;
  node->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = -1;
  fake.add_edge(graph, node, fake.add_node(graph, CU_GRAPH_NODE_TYPE_EMPTY));
  fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMSET);
  CUDA_MEMCPY3D& copy = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY)->copy;
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  fake.add_node(graph, CU_GRAPH_NODE_TYPE_GRAPH)->child = std::make_unique<FakeGraph>();
  CUevent event = new_event();
  fake.add_node(graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD)->event = event;
  fake.add_node(graph, CU_GRAPH_NODE_TYPE_WAIT_EVENT)->event = event;
  const auto index = snapshot->add(graph, "a");
  ASSERT_TRUE(index.ok()) << index.error().text;
  for (const char* call :
       {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuKernelSetAttribute", "cuFuncSetAttribute",
        "cuGraphCreate", "cuGraphAddKernelNode", "cuGraphKernelNodeSetAttribute", "cuGraphAddEmptyNode",
        "cuGraphAddMemsetNode", "cuGraphAddMemcpyNode", "cuGraphAddChildGraphNode", "cuGraphAddEventRecordNode",
        "cuGraphAddEventWaitNode", "cuGraphAddDependencies", "cuGraphInstantiateWithFlags"}) {
    fake.failures[call] = CUDA_ERROR_OUT_OF_MEMORY;
    restorer = restore(options({index.value()}));
    const auto exec = restorer->wait(index.value());
    ASSERT_FALSE(exec.ok()) << call;
    EXPECT_EQ(exec.error().kind, ErrorKind::out_of_memory) << call;
    EXPECT_CONTAINS(exec.error().text, std::string(call) + " failed");
    EXPECT_CONTAINS(exec.error().text, "graph a");
    restorer.reset();
    EXPECT_EQ(fake.live_execs, 0) << call;
    fake.failures.clear();
  }
}

TEST_F(RestoreTest, ModuleGlobalsAreWrittenAndArgumentsRebound) {
  fake.images["globals"] = {{{kScale, {{{0, 8}, {8, 4}, {12, 4}}, {}}}},
                            {{"table", {1, 2, 3, 4, 5, 6, 7, 8}}, {"same", {9, 9}}}};
  CUlibrary library = fake.load("globals");
  hook.add_library(library);
  auto& table = FakeDriver::of(library).globals["table"];
  const auto address = reinterpret_cast<uint64_t>(table.data());
  CUgraph graph = new_graph();
  FakeNode* node =
      fake.add_kernel(graph, fake.kernel(library, kScale), {bytes_of(address + 4), bytes_of(1.0f), bytes_of(1)});
  auto& window = node->attributes[CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW].accessPolicyWindow;
  window.base_ptr = table.data();
  window.num_bytes = 8;
  CUDA_MEMSET_NODE_PARAMS& set = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMSET)->set;
  set.dst = address + 1;
  CUDA_MEMCPY3D& copy = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY)->copy;
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = address + 2;
  copy.dstDevice = 0x9000;
  ASSERT_TRUE(snapshot->add(graph, "a").ok());

  GraphTables& t = snapshot->tables();
  t.module_globals.push_back({t.graphs_strings.add("table"), 0, 0, 8, 8, address});
  t.module_globals.push_back({t.graphs_strings.add("same"), 0, 0, 2, UINT64_MAX, 0x77});
  for (int i = 0; i < 8; ++i) t.global_content.push_back(std::byte{0});  // content of another global
  for (int i = 0; i < 8; ++i) t.global_content.push_back(std::byte(0x40 + i));
  const auto global = static_cast<uint32_t>(PointerClass::module_global);
  t.pointers.push_back({address + 4, 0, 0, 0, 0, global, 0});
  t.pointers.push_back({address, 0, 0, archive::kPointerWindow, 0, global, 0});
  t.pointers.push_back({address + 1, 0, 1, archive::kPointerDestination, 0, global, 0});
  t.pointers.push_back({address + 2, 0, 2, archive::kPointerSource, 0, global, 0});
  t.pointers.push_back(
      {0x9000, 0, 2, archive::kPointerDestination, 0, static_cast<uint32_t>(PointerClass::relocatable), 0});

  RestoreOptions with = options({0});
  with.relocations = {-0x1000};
  std::atomic<int> located{0};
  fake.on_call = [&](const char* call) { located += std::strcmp(call, "cuLibraryGetGlobal") == 0 ? 1 : 0; };
  restorer = restore(with);
  const auto exec = restorer->wait(0);
  ASSERT_TRUE(exec.ok()) << exec.error().text;
  FakeGraph& restored = *FakeDriver::of(exec.value()).graph;
  auto& here = restored.nodes[0]->kernel->library->globals["table"];
  const auto moved = reinterpret_cast<uint64_t>(here.data());
  EXPECT_NE(moved, address);
  EXPECT_EQ(restorer->module_global(0).value(), moved);
  // What is as the image has it is left alone until somebody asks: finding it takes the driver's lock.
  EXPECT_EQ(located, 1);
  EXPECT_EQ(restorer->module_global(1).value(),
            reinterpret_cast<uint64_t>(restored.nodes[0]->kernel->library->globals["same"].data()));
  EXPECT_EQ(located, 2);
  EXPECT_EQ(here, (std::vector<uint8_t>{0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47}));
  EXPECT_EQ(restored.nodes[0]->arguments[0], bytes_of(moved + 4));
  EXPECT_EQ(restored.nodes[0]->arguments[1], bytes_of(1.0f));
  EXPECT_EQ(restored.nodes[0]->attributes[CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW].accessPolicyWindow.base_ptr,
            here.data());
  EXPECT_EQ(restored.nodes[1]->set.dst, moved + 1);
  EXPECT_EQ(restored.nodes[2]->copy.srcDevice, moved + 2);
  EXPECT_EQ(restored.nodes[2]->copy.dstDevice, 0x8000u);
  EXPECT_EQ(table[0], 1);  // the captured process's copy is not touched

  // An archive whose pointers do not fit its arguments is refused, not patched.
  restorer.reset();
  t.pointers[0].value += 8;
  restorer = restore(with);
  EXPECT_EQ(restorer->wait(0).error().kind, ErrorKind::corrupt);
  restorer.reset();
  t.pointers[0].value -= 8;
  restorer = restore(options({0}));
  EXPECT_CONTAINS(restorer->wait(0).error().text, "relocatable range 0, which was not registered");
  restorer.reset();
  t.module_globals[0].bytes = 7;
  restorer = restore(with);
  EXPECT_CONTAINS(restorer->wait(0).error().text, "module variable table has 8 bytes here and 7 in the archive");
  restorer.reset();
  fake.on_call = nullptr;
  fake.table().cuLibraryUnload(library);
}

TEST_F(RestoreTest, LaunchWaitsAndLaunches) {
  add_graphs(1);
  restorer = restore(options({0}));
  EXPECT_TRUE(restorer->launch(0, nullptr).ok());
  EXPECT_EQ(FakeDriver::of(restorer->ready(0)).launches, 1);
  fake.failures["cuGraphLaunch"] = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_CONTAINS(restorer->launch(0, nullptr).error().text, "graph 0: cuGraphLaunch failed");
}

TEST_F(RestoreTest, ChecksItsArguments) {
  CUgraph graph = new_graph();
  fake.add_node(graph, CU_GRAPH_NODE_TYPE_GRAPH)->child = std::make_unique<FakeGraph>();
  ASSERT_TRUE(snapshot->add(graph, "a").ok());
  const GraphView view = snapshot->tables().view();
  EXPECT_CONTAINS(Restorer::start(fake.table(), view, provider(), options({5})).error().text, "no graph of that index");
  EXPECT_CONTAINS(Restorer::start(fake.table(), view, provider(), options({1, 1})).error().text, "listed twice");
  EXPECT_CONTAINS(Restorer::start(fake.table(), view, provider(), options({0})).error().text, "child graph");
  snapshot->tables().graphs[1].flags |= archive::kGraphLeftOut;
  EXPECT_CONTAINS(Restorer::start(fake.table(), snapshot->tables().view(), provider(), options({1})).error().text,
                  "left it out");
  snapshot->tables().graphs[1].flags &= ~archive::kGraphLeftOut;
  RestoreOptions without = options({1});
  without.context = nullptr;
  EXPECT_CONTAINS(Restorer::start(fake.table(), view, provider(), without).error().text, "needs a CUDA context");
  restorer = restore(options({1}));
  EXPECT_EQ(restorer->wait(0).error().kind, ErrorKind::invalid);
  EXPECT_EQ(restorer->wait(99).error().kind, ErrorKind::invalid);
  EXPECT_EQ(restorer->ready(99), nullptr);
  EXPECT_FALSE(restorer->module_global(0).ok());
}

}  // namespace
}  // namespace foundry::graph::testing
