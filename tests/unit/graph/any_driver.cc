// Capture, snapshot, restore and replay on whatever libcuda.so.1 the loader finds: the simulated driver, or a real one.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "csrc/graph/abi_images.h"
#include "csrc/graph/audit.h"
#include "csrc/graph/graph_builder.h"
#include "csrc/graph/kernels.h"
#include "csrc/graph/libraries.h"
#include "csrc/graph/reach.h"
#include "csrc/graph/restore.h"
#include "csrc/graph/snapshot.h"
#include "tests/unit/graph/fake_abi.h"

namespace foundry::graph::testing {
namespace {

constexpr const char* kScaleBias = "_ZN4mini10scale_biasENS_9ScaleArgsE";
constexpr unsigned kWords = 256;

struct ScaleArgs {
  char kind;
  CUdeviceptr y;
  short rows;
  CUdeviceptr bias;
  float scale;
  int width;
};

#define ASSERT_CU(call) ASSERT_EQ(call, CUDA_SUCCESS) << #call
#define EXPECT_CU(call) EXPECT_EQ(call, CUDA_SUCCESS) << #call

// Entry points that only an application needs.
template <class Type>
Type entry_point(const char* symbol) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Type>(dlsym(library, symbol));
}

class AnyDriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = driver::Driver::open();
    ASSERT_TRUE(opened.ok()) << opened.error().text;
    cu = opened.value();
    ASSERT_CU(cu.cuInit(0));
    ASSERT_CU(cu.cuDeviceGet(&device, 0));
    ASSERT_CU(cu.cuDevicePrimaryCtxRetain(&context, device));
    ASSERT_CU(cu.cuCtxSetCurrent(context));
    ASSERT_CU(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(cu.cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    std::ifstream file(std::getenv("IMAGE"), std::ios::binary);
    image.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_FALSE(image.empty());
    image.push_back('\0');  // PTX is text
    ASSERT_CU(cu.cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    hook.add_library(library);
    ASSERT_CU(cu.cuMemAlloc(&memory, 16 * kWords * 4));
    images.emplace(cu, hook.abi());
    snapshot.emplace(cu, *images);
  }
  void TearDown() override {
    restorer.reset();
    if (library != nullptr) {
      EXPECT_CU(cu.cuLibraryUnload(library));
    }
    EXPECT_CU(cu.cuMemFree(memory));
    EXPECT_CU(cu.cuStreamDestroy(stream));
    EXPECT_CU(cu.cuStreamDestroy(side));
    EXPECT_CU(cu.cuDevicePrimaryCtxRelease(device));
  }

  CUfunction function(const char* name) {
    CUkernel kernel = nullptr;
    CUfunction found = nullptr;
    EXPECT_CU(cu.cuLibraryGetKernel(&kernel, library, name));
    EXPECT_CU(cu.cuKernelGetFunction(&found, kernel));
    return found;
  }
  // The i-th array of kWords words.
  CUdeviceptr array(unsigned index) const { return memory + index * kWords * 4; }
  std::vector<uint32_t> read(unsigned index) {
    std::vector<uint32_t> words(kWords);
    EXPECT_CU(cu.cuMemcpyDtoH(words.data(), array(index), kWords * 4));
    return words;
  }
  void launch(CUstream on, const char* name, std::vector<void*> params, std::vector<CUlaunchAttribute> attributes = {},
              unsigned dynamic_shared = 0) {
    CUlaunchConfig config{};
    config.gridDimX = 2;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = kWords / 2;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = dynamic_shared;
    config.hStream = on;
    config.attrs = attributes.data();
    config.numAttrs = static_cast<unsigned>(attributes.size());
    EXPECT_CU(
        entry_point<PFN_cuLaunchKernelEx_v11060>("cuLaunchKernelEx")(&config, function(name), params.data(), nullptr));
  }
  void fill(CUstream on, unsigned to, uint32_t value, std::vector<CUlaunchAttribute> attributes = {},
            unsigned shared = 0) {
    CUdeviceptr y = array(to);
    uint64_t count = kWords;
    launch(on, "fill_words", {&y, &value, &count}, std::move(attributes), shared);
  }
  CUgraph capture(const std::function<void()>& work) {
    EXPECT_CU(entry_point<PFN_cuStreamBeginCapture_v10010>("cuStreamBeginCapture_v2")(stream,
                                                                                      CU_STREAM_CAPTURE_MODE_RELAXED));
    work();
    CUgraph graph = nullptr;
    EXPECT_CU(entry_point<PFN_cuStreamEndCapture_v10000>("cuStreamEndCapture")(stream, &graph));
    return graph;
  }

  // Everything a decode step has: kernels of both argument forms, attributes, programmatic edges, two streams, memcpy
  // and memset nodes of one and two dimensions.
  CUgraph capture_step() {
    CUevent fork = nullptr, join = nullptr;
    EXPECT_CU(cu.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    EXPECT_CU(cu.cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    const auto wait = entry_point<PFN_cuStreamWaitEvent_v3020>("cuStreamWaitEvent");
    const auto set_2d = entry_point<PFN_cuMemsetD2D16Async_v3020>("cuMemsetD2D16Async");
    const auto set = entry_point<PFN_cuMemsetD32Async_v3020>("cuMemsetD32Async");
    // An opt-in of the library's user that LOAD has to repeat.
    EXPECT_CU(cu.cuFuncSetAttribute(function("fill_words"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
    int major = 0;
    EXPECT_CU(cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    clusters = major >= 9;
    CUlaunchAttribute overlap{}, priority{}, cluster{};
    overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    overlap.value.programmaticStreamSerializationAllowed = 1;
    priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    priority.value.priority = -1;
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {2, 1, 1};
    CUgraph graph = capture([&] {
      fill(stream, 0, 0x3f800000, {priority}, 52000);  // 1.0f
      fill(stream, 1, 0x40000000, {overlap});          // 2.0f
      EXPECT_CU(cu.cuEventRecord(fork, stream));
      EXPECT_CU(wait(side, fork, 0));
      fill(side, 2, 7, clusters ? std::vector{cluster} : std::vector<CUlaunchAttribute>{});
      EXPECT_CU(set(array(3), 0xabcd, kWords, side));
      EXPECT_CU(set_2d(array(4), 64, 0x1234, 8, 16, side));
      ScaleArgs args{'b', array(0), 2, array(1), 3.0f, static_cast<int>(kWords / 2)};
      size_t bytes = sizeof args;
      void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
      EXPECT_CU(cu.cuLaunchKernel(function(kScaleBias), 1, 1, 1, kWords, 1, 1, 0, stream, nullptr, extra));
      EXPECT_CU(cu.cuEventRecord(join, side));
      EXPECT_CU(wait(stream, join, 0));
      EXPECT_CU(cu.cuMemcpyDtoDAsync(array(5), array(0), kWords * 4, stream));
      CUdeviceptr out = array(6);
      launch(stream, "count_step", {&out}, {overlap});
    });
    EXPECT_CU(cu.cuEventDestroy(fork));
    EXPECT_CU(cu.cuEventDestroy(join));
    return graph;
  }
  ImageProvider provider() {
    return [this](uint32_t) -> Result<ImageBytes> {
      auto copy = std::make_shared<std::vector<char>>(image);
      return ImageBytes{std::as_bytes(std::span(*copy)), copy};
    };
  }
  RestoreOptions options(std::vector<uint32_t> order) {
    RestoreOptions with;
    with.context = context;
    with.device = device;
    with.order = std::move(order);
    return with;
  }
  uint32_t add(CUgraph graph, const std::string& name) {
    const auto index = snapshot->add(graph, name);
    EXPECT_TRUE(index.ok()) << index.error().text;
    return index.ok() ? index.value() : 0;
  }

  driver::Driver cu;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr, side = nullptr;
  std::vector<char> image;
  CUlibrary library = nullptr;
  CUdeviceptr memory = 0;
  bool clusters = false;  // the device has them
  FakeAbi hook;
  std::optional<AbiImages> images;
  std::optional<Snapshotter> snapshot;
  std::unique_ptr<Restorer> restorer;
};

// What distinguishes two snapshots of equal graphs: nothing but handles, which records do not hold.
void expect_equal(const GraphView& a, const GraphView& b) {
#define EXPECT_SAME(section)                                                                                     \
  ASSERT_EQ(a.section.size(), b.section.size()) << #section;                                                     \
  EXPECT_TRUE(a.section.empty() || std::memcmp(a.section.data(), b.section.data(), a.section.size_bytes()) == 0) \
      << #section
  EXPECT_SAME(nodes);
  EXPECT_SAME(kernels);
  EXPECT_SAME(params);
  EXPECT_SAME(function_attributes);
  EXPECT_SAME(launch_attributes);
  EXPECT_SAME(arguments);
  EXPECT_SAME(memcpys);
  EXPECT_SAME(memsets);
  EXPECT_SAME(graph_events);
#undef EXPECT_SAME
  // Edges are added by kind, so their order may differ.
  const auto edges = [](const GraphView& view) {
    std::map<std::pair<uint32_t, uint32_t>, std::vector<int>> sorted;
    for (const auto& edge : view.edges) sorted[{edge.from, edge.to}] = {edge.from_port, edge.to_port, edge.type};
    return sorted;
  };
  EXPECT_EQ(edges(a), edges(b));
}

TEST_F(AnyDriverTest, ASnapshotOfTheRebuiltGraphIsTheSame) {
  CUgraph graph = capture_step();
  add(graph, "step");
  const GraphTables& t = snapshot->tables();
  EXPECT_EQ(t.kernels.size(), 5u);
  EXPECT_EQ(t.memsets.size(), 2u);
  EXPECT_EQ(t.memcpys.size(), 1u);
  bool programmatic = false, extra = false;
  for (const auto& edge : t.edges) programmatic = programmatic || edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  for (const auto& kernel : t.kernels)
    extra = extra || kernel.argument_form == static_cast<uint32_t>(archive::ArgumentForm::extra);
  EXPECT_TRUE(programmatic);
  EXPECT_TRUE(extra);
  ASSERT_EQ(t.function_attributes.size(), 1u);
  EXPECT_EQ(t.function_attributes[0].value, 60000);
  std::map<uint32_t, int> launch_attributes;
  for (const auto& attribute : t.launch_attributes) ++launch_attributes[attribute.id];
  // A driver may report how clusters are scheduled, but only the one node that has clusters is stored with it.
  EXPECT_LE(launch_attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE], 1);
  launch_attributes.erase(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
  std::map<uint32_t, int> expected{{CU_LAUNCH_ATTRIBUTE_PRIORITY, 1}};
  if (clusters) expected[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION] = 1;
  EXPECT_EQ(launch_attributes, expected);

  const GraphView view = t.view();
  const uint32_t order[] = {0};
  Libraries libraries(cu, view, provider(), order);
  while (libraries.load_next()) {
  }
  Kernels kernels(cu, view, libraries, device);
  const GraphBuilder builder({cu, view, libraries, kernels, context, {}, {}, {}});
  LookupTime time;
  const auto rebuilt = builder.build(0, time);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.error().text;
  FakeAbi other_hook;
  other_hook.add_library(libraries.wait(0).value());
  AbiImages other_images(cu, other_hook.abi());
  Snapshotter again(cu, other_images);
  const auto index = again.add(rebuilt.value(), "step");
  ASSERT_TRUE(index.ok()) << index.error().text;
  expect_equal(view, again.tables().view());
  EXPECT_CU(cu.cuGraphDestroy(rebuilt.value()));
  EXPECT_CU(cu.cuGraphDestroy(graph));
  libraries.unload();
}

TEST_F(AnyDriverTest, ReplaysLikeTheCapturedGraphAfterEverythingOfItIsGone) {
  CUgraph graph = capture_step();
  const uint32_t index = add(graph, "step");
  CUgraphExec native = nullptr;
  ASSERT_CU(cu.cuGraphInstantiateWithFlags(&native, graph, 9));
  std::vector<std::vector<uint32_t>> expected;
  ASSERT_CU(cu.cuGraphLaunch(native, stream));
  ASSERT_CU(cu.cuStreamSynchronize(stream));
  for (unsigned i = 0; i < 7; ++i) expected.push_back(read(i));
  EXPECT_EQ(expected[0][0], 0x40a00000u);  // 1 * 3 + 2
  EXPECT_EQ(expected[2][0], 7u);
  EXPECT_EQ(expected[6][0], 1u);  // the first step
  ASSERT_CU(cu.cuGraphExecDestroy(native));
  ASSERT_CU(cu.cuGraphDestroy(graph));
  ASSERT_CU(cu.cuLibraryUnload(library));
  library = nullptr;
  ASSERT_CU(cu.cuMemsetD8(memory, 0xee, 16 * kWords * 4));
  ASSERT_CU(cu.cuCtxSynchronize());

  auto started = Restorer::start(cu, snapshot->tables().view(), provider(), options({index}));
  ASSERT_TRUE(started.ok()) << started.error().text;
  restorer = std::move(started).value();
  const Status launched = restorer->launch(index, stream);
  ASSERT_TRUE(launched.ok()) << launched.error().text;
  ASSERT_CU(cu.cuStreamSynchronize(stream));
  for (unsigned i = 0; i < 7; ++i) {
    if (i == 4 || i == 6) continue;  // written in part; compared below
    EXPECT_EQ(read(i), expected[i]) << "array " << i;
  }
  EXPECT_EQ(read(4)[0], 0x12341234u);
  EXPECT_EQ(read(4)[4], 0xeeeeeeeeu);  // between the rows of the two-dimensional memset
  EXPECT_EQ(read(6)[0], 1u);           // the image's own variable starts anew
}

TEST_F(AnyDriverTest, ModuleVariablesAreRestoredAndReboundWhereTheyAreArguments) {
  CUdeviceptr counter = 0;
  size_t bytes = 0;
  ASSERT_CU(cu.cuLibraryGetGlobal(&counter, &bytes, library, "step_counter"));
  ASSERT_EQ(bytes, 4u);
  // The variable's own address is an argument: the kernel overwrites the counter with 40, then counts.
  CUgraph graph = capture([&] {
    CUdeviceptr y = counter;
    uint32_t value = 40;
    uint64_t count = 1;
    launch(stream, "fill_words", {&y, &value, &count});
    CUdeviceptr out = array(0);
    launch(stream, "count_step", {&out});
  });
  CUgraph counting = capture([&] {
    CUdeviceptr out = array(1);
    launch(stream, "count_step", {&out});
  });
  const uint32_t first = add(graph, "first"), second = add(counting, "second");
  GraphTables& t = snapshot->tables();
  t.module_globals.push_back({t.graphs_strings.add("step_counter"), 0, 0, 4, 0, counter});
  const uint32_t seventeen = 17;
  const auto content = std::as_bytes(std::span(&seventeen, 1));
  t.global_content.assign(content.begin(), content.end());
  const MemoryMap nothing = MemoryMap::create({}, {}, {}).value();
  AuditInput input;
  input.graphs = t.view();
  input.memory = &nothing;
  auto audited = audit(cu, input);
  ASSERT_TRUE(audited.ok()) << audited.error().text;
  // Arrays lie outside any zone here, so the audit objects to them; the counter is known.
  ASSERT_EQ(audited->pointers.size(), 3u);
  EXPECT_EQ(audited->findings.size(), 2u);
  EXPECT_EQ(audited->findings[0].kind, FindingKind::unknown_device);
  EXPECT_EQ(audited->pointers[0].pointer_class, static_cast<uint32_t>(archive::PointerClass::module_global));
  t.pointers = audited->pointers;
  ASSERT_CU(cu.cuGraphDestroy(graph));
  ASSERT_CU(cu.cuGraphDestroy(counting));

  auto started = Restorer::start(cu, t.view(), provider(), options({first, second}));
  ASSERT_TRUE(started.ok()) << started.error().text;
  restorer = std::move(started).value();
  ASSERT_TRUE(restorer->launch(second, stream).ok());
  ASSERT_TRUE(restorer->launch(first, stream).ok());
  ASSERT_CU(cu.cuStreamSynchronize(stream));
  EXPECT_EQ(read(1)[0], 18u);  // from the stored content
  EXPECT_EQ(read(0)[0], 41u);  // from the restored image's variable, not from the captured process's
  uint32_t untouched = 1;
  ASSERT_CU(cu.cuMemcpyDtoH(&untouched, counter, 4));
  EXPECT_EQ(untouched, 0u);
  EXPECT_NE(restorer->module_global(0).value(), counter);
}

TEST_F(AnyDriverTest, ChildGraphsAndEvents) {
  CUevent event = nullptr;
  ASSERT_CU(cu.cuEventCreate(&event, 0));
  CUgraph inner = capture([&] { fill(stream, 0, 5); });
  CUgraph graph = nullptr;
  ASSERT_CU(cu.cuGraphCreate(&graph, 0));
  CUgraphNode child = nullptr, record = nullptr, empty = nullptr;
  ASSERT_CU(cu.cuGraphAddChildGraphNode(&child, graph, nullptr, 0, inner));
  ASSERT_CU(cu.cuGraphAddEventRecordNode(&record, graph, &child, 1, event));
  ASSERT_CU(cu.cuGraphAddEmptyNode(&empty, graph, &record, 1));
  CUgraph waiting = nullptr;
  ASSERT_CU(cu.cuGraphCreate(&waiting, 0));
  CUgraphNode wait = nullptr;
  ASSERT_CU(cu.cuGraphAddEventWaitNode(&wait, waiting, nullptr, 0, event));
  CUevent unused = nullptr;
  ASSERT_CU(cu.cuEventCreate(&unused, 0));
  EXPECT_FALSE(snapshot->name_event(unused, "unused", 0));
  const uint32_t outer = add(graph, "outer");
  // A framework may create an event long after it was registered: names come last.
  EXPECT_TRUE(snapshot->name_event(event, "done", CU_EVENT_DISABLE_TIMING));
  const uint32_t other = add(waiting, "waiting");
  EXPECT_EQ(snapshot->tables().graph_events.size(), 1u);
  EXPECT_EQ(snapshot->tables().graph_events[0].flags, uint32_t{CU_EVENT_DISABLE_TIMING});
  ASSERT_CU(cu.cuEventDestroy(unused));
  for (CUgraph one : {inner, graph, waiting}) ASSERT_CU(cu.cuGraphDestroy(one));
  ASSERT_CU(cu.cuEventDestroy(event));
  auto started = Restorer::start(cu, snapshot->tables().view(), provider(), options({other, outer}));
  ASSERT_TRUE(started.ok()) << started.error().text;
  restorer = std::move(started).value();
  ASSERT_TRUE(restorer->launch(outer, stream).ok());
  ASSERT_TRUE(restorer->launch(other, side).ok());
  ASSERT_CU(cu.cuStreamSynchronize(side));
  ASSERT_CU(cu.cuEventSynchronize(restorer->event("done").value()));
  ASSERT_CU(cu.cuStreamSynchronize(stream));
  EXPECT_EQ(read(0)[kWords - 1], 5u);
}

TEST_F(AnyDriverTest, AddingAGraphIsFast) {
  CUgraph graph = capture([&] {
    for (uint32_t i = 0; i < 336; ++i) fill(stream, i % 8, i);
  });
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kGraphs = 20;
  for (int i = 0; i < kGraphs; ++i) add(graph, std::to_string(i));
  const double add_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_CU(cu.cuGraphDestroy(graph));
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < kGraphs; ++i) order.push_back(i);
  RestoreOptions apart = options(order);
  apart.tuning.share_execs = false;
  auto started = Restorer::start(cu, snapshot->tables().view(), provider(), apart);
  ASSERT_TRUE(started.ok()) << started.error().text;
  restorer = std::move(started).value();
  ASSERT_TRUE(restorer->wait_all().ok());
  const RestoreStats stats = restorer->stats();
  std::printf(
      "%d graphs of 336 kernels: snapshot %.3f ms each; restore %.1f ms (first ready after %.1f; images %.1f, kernels "
      "%.1f, build %.1f, instantiate %.1f)\n",
      kGraphs, add_ms / kGraphs, stats.total_ms, stats.first_ready_ms, stats.images_ms, stats.kernels_ms,
      stats.build_ms, stats.instantiate_ms);
  EXPECT_EQ(stats.nodes, 336u * kGraphs);
  ASSERT_TRUE(restorer->launch(19, stream).ok());
  ASSERT_CU(cu.cuStreamSynchronize(stream));
  EXPECT_EQ(read(335 % 8)[0], 335u);
}

}  // namespace
}  // namespace foundry::graph::testing
