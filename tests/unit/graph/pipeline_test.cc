#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "csrc/graph/pipeline.h"
#include "tests/unit/graph/fixture.h"

namespace foundry::graph::testing {
namespace {

class PipelineTest : public GraphTest {};

// Stops every thread that calls the named function, until open().
class Gate {
 public:
  explicit Gate(FakeDriver& fake, const char* call) : fake_(fake) {
    fake_.on_call = [this, call](const char* name) {
      if (std::strcmp(name, call) != 0) return;
      std::unique_lock lock(mutex_);
      ++arrived_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_; });
    };
  }
  void wait_for_arrivals(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }
  int arrived() {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  FakeDriver& fake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

std::vector<uint64_t> order_of_execs(FakeDriver& fake) {
  std::vector<uint64_t> order;
  for (const std::string& text : fake.calls("exec ")) order.push_back(std::stoull(text.substr(5)));
  return order;
}

TEST_F(PipelineTest, FollowsTheGivenOrder) {
  add_graphs(6);
  restorer = restore(options({4, 1, 5, 0}));
  ASSERT_TRUE(restorer->wait_all().ok());
  EXPECT_EQ(order_of_execs(fake), (std::vector<uint64_t>{0x1004, 0x1001, 0x1005, 0x1000}));
  EXPECT_EQ(restorer->ready(2), nullptr);
  const RestoreStats stats = restorer->stats();
  EXPECT_EQ(stats.graphs_ready, 4u);
  EXPECT_EQ(stats.functions, 1u);
  EXPECT_EQ(stats.images, 1u);
  EXPECT_EQ(stats.nodes, 4u);
  EXPECT_GT(stats.total_ms, 0.0);
  EXPECT_GE(stats.total_ms, stats.first_ready_ms);
}

TEST_F(PipelineTest, APreferredGraphComesNext) {
  const std::vector<uint32_t> indices = add_graphs(40);
  Gate gate(fake, "cuGraphInstantiateWithFlags");
  restorer = restore(options(indices));
  gate.wait_for_arrivals(1);
  restorer->prefer(39);
  gate.open();
  ASSERT_TRUE(restorer->wait_all().ok());
  const std::vector<uint64_t> order = order_of_execs(fake);
  const auto place = std::find(order.begin(), order.end(), 0x1000 + 39) - order.begin();
  EXPECT_EQ(place, 1);  // behind the one in hand
}

TEST_F(PipelineTest, HeldGraphsWaitForTheirRelease) {
  const std::vector<uint32_t> indices = add_graphs(6);
  RestoreOptions with = options({5, 4, 3, 2, 1, 0});
  with.held = {4, 1};
  with.tuning.graph_threads = 2;
  restorer = restore(with);
  for (const uint32_t graph : {5u, 3u, 2u, 0u}) EXPECT_TRUE(restorer->wait(graph).ok());
  EXPECT_EQ(restorer->ready(4), nullptr);
  EXPECT_EQ(restorer->ready(1), nullptr);
  std::thread waiter([&] { EXPECT_TRUE(restorer->wait(1).ok()); });
  restorer->release();
  waiter.join();
  EXPECT_TRUE(restorer->wait_all().ok());
  EXPECT_EQ(restorer->stats().graphs_ready, 6u);
  restorer->release();
  EXPECT_TRUE(restorer->wait_all().ok());
}

TEST_F(PipelineTest, ReleasedGraphsTakeTheirPlaceInTheOrder) {
  add_graphs(6);
  Gate gate(fake, "cuLibraryLoadData");  // nothing is built before
  RestoreOptions with = options({5, 4, 3, 2, 1, 0});
  with.held = {1, 4};
  restorer = restore(with);
  gate.wait_for_arrivals(1);
  restorer->release();
  gate.open();
  ASSERT_TRUE(restorer->wait_all().ok());
  const std::vector<uint64_t> order = order_of_execs(fake);
  EXPECT_EQ(order, (std::vector<uint64_t>{0x1005, 0x1004, 0x1003, 0x1002, 0x1001, 0x1000}));
}

TEST_F(PipelineTest, CancelFailsHeldGraphs) {
  add_graphs(2);
  RestoreOptions with = options({0, 1});
  with.held = {1};
  restorer = restore(with);
  EXPECT_TRUE(restorer->wait(0).ok());
  std::thread waiter([&] { EXPECT_EQ(restorer->wait(1).error().kind, ErrorKind::state); });
  restorer->cancel();
  waiter.join();
  EXPECT_FALSE(restorer->wait_all().ok());
}

TEST_F(PipelineTest, OnlyListedGraphsCanBeHeld) {
  add_graphs(2);
  RestoreOptions with = options({0});
  with.held = {1};
  const auto started = Restorer::start(fake.table(), snapshot->tables().view(), provider(), with);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().kind, ErrorKind::invalid);
}

// Every way to spread the work gives every graph, with images that come late and graphs that are asked for first.
TEST_F(PipelineTest, EverySpreadOfThreadsRestoresEverything) {
  const std::vector<uint32_t> indices = add_graphs(60);
  for (const uint32_t loaders : {1u, 3u}) {
    for (const uint32_t builders : {1u, 3u}) {
      for (const bool grow : {false, true}) {
        RestoreOptions with = options(indices);
        with.tuning = {loaders, builders, grow};
        restorer = restore(with);
        EXPECT_TRUE(restorer->wait(59).ok());
        ASSERT_TRUE(restorer->wait_all().ok());
        const RestoreStats stats = restorer->stats();
        EXPECT_EQ(stats.graphs_ready, 60u);
        EXPECT_EQ(stats.functions, 1u);
        restorer.reset();
      }
    }
  }
}

TEST_F(PipelineTest, TheMachineChoosesTheThreads) {
  const std::vector<uint32_t> indices = add_graphs(60);
  Gate gate(fake, "cuGraphInstantiateWithFlags");
  RestoreOptions with = options(indices);
  with.tuning = {};
  restorer = restore(with);
  const auto threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 2u));
  gate.wait_for_arrivals(threads);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(gate.arrived(), threads);
  gate.open();
  ASSERT_TRUE(restorer->wait_all().ok());
}

// Records of one graph for each count of nodes, all of one kernel, whose image has `image_bytes`.
struct Sizes {
  Sizes(const std::vector<uint32_t>& counts, uint64_t image_bytes) {
    tables.images.emplace_back().bytes = image_bytes;
    tables.functions.emplace_back();
    tables.kernels.emplace_back();
    for (const uint32_t count : counts) {
      archive::GraphRecord& graph = tables.graphs.emplace_back();
      graph.first_node = static_cast<uint32_t>(tables.nodes.size());
      graph.node_count = count;
      tables.nodes.insert(tables.nodes.end(), count, {CU_GRAPH_NODE_TYPE_KERNEL, 0});
      options.order.push_back(static_cast<uint32_t>(options.order.size()));
    }
  }
  HeapRoom room(uint32_t loaders, uint32_t builders) const {
    return heap_room(tables.view(), options, loaders, builders);
  }

  GraphTables tables;
  RestoreOptions options;
};

TEST(HeapRoomTest, FollowsWhatIsRestored) {
  Sizes sizes({1000, 3000}, 100'000);
  const uint64_t all = exec_bytes(sizes.tables.view(), 0).host + exec_bytes(sizes.tables.view(), 1).host;
  EXPECT_EQ(sizes.room(1, 1).builder, all + all / 4);
  EXPECT_EQ(sizes.room(1, 2).builder, (all + all / 4) / 2);
  EXPECT_EQ(sizes.room(2, 1).loader, sizes.room(1, 1).loader / 2);
  EXPECT_GE(sizes.room(1, 1).loader, 100'000u);
  sizes.options.order = {0};
  EXPECT_EQ(sizes.room(1, 1).builder, (all + all / 4) / 4);
  sizes.options.order = {};
  EXPECT_EQ(sizes.room(1, 1).builder, 0u);
  EXPECT_EQ(sizes.room(1, 1).loader, 0u);
}

TEST(HeapRoomTest, ABudgetOfExecsBoundsItAndSoDoesAMostForAThread) {
  Sizes sizes({1000}, 1000);
  const ExecBytes all = exec_bytes(sizes.tables.view(), 0);
  sizes.options.exec_budget = all.device / 2;
  EXPECT_NEAR(static_cast<double>(sizes.room(1, 1).builder), static_cast<double>(all.host) / 2 * 1.25, 2);
  sizes.options.exec_budget = 2 * all.device;
  EXPECT_EQ(sizes.room(1, 1).builder, all.host + all.host / 4);
  const Sizes large(std::vector<uint32_t>(4, 100'000), uint64_t{1} << 62);
  EXPECT_EQ(large.room(1, 1).builder, uint64_t{512} << 20);
  EXPECT_EQ(large.room(1, 1).loader, uint64_t{30} << 20);
}

TEST_F(PipelineTest, HeapsGrowForLargeGraphsUnlessToldNotTo) {
  CUgraph large = new_graph();
  for (int i = 0; i < 1000; ++i) add_plain(large);
  const uint32_t graph = snapshot->add(large, "large").value();
  const std::vector<uint32_t> small = add_graphs(1);
  const auto grown = [&](uint32_t index, bool grow) {
    RestoreOptions with = options({index});
    with.tuning.grow_heaps = grow;
    restorer = restore(with);
    EXPECT_TRUE(restorer->wait_all().ok());
    return restorer->stats().heap_bytes;
  };
  const HeapRoom room = heap_room(snapshot->tables().view(), options({graph}), 8, 1);
  EXPECT_EQ(grown(graph, true), room.builder);
  EXPECT_EQ(grown(graph, false), 0u);
  EXPECT_EQ(grown(small[0], true), 0u);
}

// Room for three of ten graphs of one node each.
class BudgetTest : public PipelineTest {
 protected:
  void SetUp() override {
    PipelineTest::SetUp();
    indices = add_graphs(10);
    one = exec_bytes(snapshot->tables().view(), 0).device;
    RestoreOptions with = options(indices);
    with.exec_budget = 3 * one + one / 2;
    restorer = restore(with);
  }
  std::vector<uint32_t> with_exec() const {
    std::vector<uint32_t> found;
    for (const uint32_t graph : indices) {
      if (restorer->ready(graph) != nullptr) found.push_back(graph);
    }
    return found;
  }
  void launch(uint32_t graph) const { EXPECT_TRUE(restorer->launch(graph, nullptr).ok()) << graph; }

  std::vector<uint32_t> indices;
  uint64_t one = 0;
};

TEST_F(BudgetTest, TheFirstOfTheOrderStay) {
  ASSERT_TRUE(restorer->wait_all().ok());
  for (const uint32_t graph : indices) EXPECT_TRUE(restorer->wait(graph).ok());
  EXPECT_EQ(with_exec(), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(fake.live_execs, 3);
  const RestoreStats stats = restorer->stats();
  EXPECT_EQ(stats.graphs_ready, 10u);
  EXPECT_EQ(stats.execs, 3u);
  EXPECT_EQ(stats.evicted, 7u);
  EXPECT_EQ(stats.rebuilt, 0u);
  EXPECT_EQ(stats.exec_device_bytes, 3 * one);
  EXPECT_GT(stats.exec_host_bytes, stats.exec_device_bytes);
}

TEST_F(BudgetTest, WhatWasLaunchedLongestAgoGoesFirst) {
  ASSERT_TRUE(restorer->wait_all().ok());
  launch(2);
  launch(0);
  launch(7);  // instead of 1, which was never launched
  EXPECT_EQ(with_exec(), (std::vector<uint32_t>{0, 2, 7}));
  launch(9);
  EXPECT_EQ(with_exec(), (std::vector<uint32_t>{0, 7, 9}));
  launch(0);
  launch(5);
  EXPECT_EQ(with_exec(), (std::vector<uint32_t>{0, 5, 9}));
  for (const uint32_t graph : indices) {
    launch(graph);
    EXPECT_EQ(FakeDriver::of(restorer->ready(graph)).graph->nodes[0]->arguments[0], bytes_of(uint64_t{0x1000} + graph));
  }
  EXPECT_EQ(restorer->stats().rebuilt, 3u + 9u);
  EXPECT_EQ(fake.live_execs, 3);
}

TEST_F(BudgetTest, AGraphThatIsLargerThanTheBudgetIsAlone) {
  restorer.reset();
  RestoreOptions with = options(indices);
  with.exec_budget = 1;
  restorer = restore(with);
  ASSERT_TRUE(restorer->wait_all().ok());
  EXPECT_EQ(fake.live_execs, 0);
  launch(4);
  launch(6);
  EXPECT_EQ(with_exec(), (std::vector<uint32_t>{6}));
}

TEST_F(BudgetTest, AFailureToBuildAgainIsTheLaunchsAndTheNextOneTriesAgain) {
  ASSERT_TRUE(restorer->wait_all().ok());
  fake.failures["cuGraphInstantiateWithFlags"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_CONTAINS(restorer->launch(8, nullptr).error().text, "cuGraphInstantiateWithFlags failed");
  fake.failures.clear();
  launch(8);
  EXPECT_EQ(fake.live_graphs, static_cast<int>(graphs.size()));
}

TEST_F(BudgetTest, AnExecThatIsBeingLaunchedStays) {
  ASSERT_TRUE(restorer->wait_all().ok());
  Gate gate(fake, "cuGraphLaunch");
  std::vector<std::thread> launches;
  for (const uint32_t graph : {0u, 5u, 6u, 7u, 7u}) {
    launches.emplace_back([this, graph] {
      const driver::ScopedContext current(fake.table(), fake.context());
      launch(graph);
    });
  }
  gate.wait_for_arrivals(5);
  for (const uint32_t graph : {0u, 5u, 6u, 7u}) EXPECT_NE(restorer->ready(graph), nullptr) << graph;
  gate.open();
  for (std::thread& thread : launches) thread.join();
  EXPECT_EQ(fake.live_execs, 3);  // what was too much is gone
}

TEST_F(BudgetTest, ManyThreadsLaunchEverything) {
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const driver::ScopedContext current(fake.table(), fake.context());
      for (uint32_t i = 0; i < 200; ++i) launch((i * (t + 1) + t) % 10);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake.live_execs, 3);
  EXPECT_EQ(restorer->stats().execs, static_cast<uint32_t>(fake.live_execs));
}

TEST_F(PipelineTest, WithoutABudgetNothingIsEvicted) {
  const std::vector<uint32_t> indices = add_graphs(10);
  restorer = restore(options(indices));
  ASSERT_TRUE(restorer->wait_all().ok());
  const RestoreStats stats = restorer->stats();
  EXPECT_EQ(stats.execs, 10u);
  EXPECT_EQ(stats.evicted, 0u);
  EXPECT_EQ(stats.exec_device_bytes, 10 * exec_bytes(snapshot->tables().view(), 0).device);
}

TEST_F(PipelineTest, GraphsWithCopiesAreFoundInChildGraphsToo) {
  const std::vector<uint32_t> plain = add_graphs(1);
  CUgraph fills = new_graph();
  fake.add_node(fills, CU_GRAPH_NODE_TYPE_MEMSET)->set = {0x200000000, 256, 1, 4, 10, 5};
  CUgraph parent = new_graph();
  FakeNode* node = fake.add_node(parent, CU_GRAPH_NODE_TYPE_GRAPH);
  node->child = std::make_unique<FakeGraph>();
  FakeNode* inner = fake.add_node(reinterpret_cast<CUgraph>(node->child.get()), CU_GRAPH_NODE_TYPE_GRAPH);
  inner->child = std::make_unique<FakeGraph>();
  fake.add_node(reinterpret_cast<CUgraph>(inner->child.get()), CU_GRAPH_NODE_TYPE_MEMSET)->set = {0x200000000, 256, 1,
                                                                                                  4,           10,  5};
  const uint32_t a = snapshot->add(fills, "fills").value();
  const uint32_t b = snapshot->add(parent, "parent").value();
  const std::vector<uint32_t> order{b, plain[0], a};
  EXPECT_EQ(graphs_with_copies(snapshot->tables().view(), order, {}), (std::vector<uint32_t>{b, a}));
}

TEST_F(PipelineTest, CopiesWithinMappedMemoryAreNoReasonToWait) {
  int graphs = 0;
  const auto copy = [&](uint64_t source, uint64_t destination, size_t bytes, size_t rows = 1) {
    CUgraph graph = new_graph();
    CUDA_MEMCPY3D& made = fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY)->copy;
    made.srcMemoryType = made.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    made.srcDevice = source;
    made.dstDevice = destination;
    made.WidthInBytes = bytes;
    made.Height = rows;
    made.Depth = 1;
    made.srcPitch = made.dstPitch = bytes;
    return snapshot->add(graph, "copy " + std::to_string(++graphs)).value();
  };
  const auto fill = [&](uint64_t destination, size_t width, size_t height) {
    CUgraph graph = new_graph();
    fake.add_node(graph, CU_GRAPH_NODE_TYPE_MEMSET)->set = {destination, 256, 1, 4, width, height};
    return snapshot->add(graph, "fill " + std::to_string(++graphs)).value();
  };
  const std::vector<MappedRange> mapped = {{0x1000, 0x1000}, {0x8000, 0x2000}};
  const std::vector<uint32_t> within = {copy(0x1000, 0x9000, 0x1000), fill(0x8000, 0x800, 1)};
  const std::vector<uint32_t> beyond = {
      copy(0x1000, 0x9001, 0x1000), copy(0xfff, 0x8000, 0x10), copy(0x3000, 0x8000, 0x10), copy(0x8000, 0x2000, 0x10),
      copy(0x1000, 0x8000, 8, 2),   fill(0x8000, 0x800, 2),    fill(0x8004, 0x800, 1)};
  std::vector<uint32_t> order = within;
  order.insert(order.end(), beyond.begin(), beyond.end());
  const GraphView view = snapshot->tables().view();
  EXPECT_EQ(graphs_with_copies(view, order, mapped), beyond);
  EXPECT_EQ(graphs_with_copies(view, order, {}), order);
}

TEST_F(PipelineTest, CancelFailsWhatIsNotReady) {
  const std::vector<uint32_t> indices = add_graphs(20);
  Gate gate(fake, "cuGraphInstantiateWithFlags");
  restorer = restore(options(indices));
  gate.wait_for_arrivals(1);
  std::thread waiter([&] {
    const auto exec = restorer->wait(19);
    ASSERT_FALSE(exec.ok());
    EXPECT_EQ(exec.error().kind, ErrorKind::state);
  });
  std::thread canceller([&] { restorer->cancel(); });
  waiter.join();
  gate.open();
  canceller.join();
  EXPECT_EQ(fake.live_graphs, static_cast<int>(graphs.size()));
  EXPECT_TRUE(restorer->wait(0).ok());  // the one in hand was finished
  EXPECT_EQ(restorer->wait(18).error().kind, ErrorKind::state);
  EXPECT_FALSE(restorer->wait_all().ok());
  restorer->cancel();
}

TEST_F(PipelineTest, CancelWakesThoseWhoWaitForImages) {
  const std::vector<uint32_t> indices = add_graphs(3);
  Gate gate(fake, "cuLibraryLoadData");
  restorer = restore(options(indices));
  gate.wait_for_arrivals(1);
  std::thread canceller([&] { restorer->cancel(); });
  EXPECT_FALSE(restorer->wait(2).ok());
  gate.open();
  canceller.join();
  EXPECT_FALSE(restorer->wait_all().ok());
}

TEST_F(PipelineTest, ImagesAreLoadedInOrderOfFirstUseAndOnlyThose) {
  fake.images["unused"] = {{{"other", {{}, {}}}}, {}};
  CUlibrary unused = fake.load("unused");
  hook.add_library(unused);
  CUgraph other = new_graph();
  fake.add_kernel(other, fake.kernel(unused, "other"), {});
  CUgraph plain = new_graph();
  add_plain(plain);
  CUgraph scale = new_graph();
  add_scale(scale);
  ASSERT_TRUE(snapshot->add(other, "other").ok());
  ASSERT_TRUE(snapshot->add(plain, "plain").ok());
  ASSERT_TRUE(snapshot->add(scale, "scale").ok());
  fake.log.clear();
  RestoreOptions with = options({2, 1});
  with.tuning.image_threads = 1;
  restorer = restore(with);
  ASSERT_TRUE(restorer->wait_all().ok());
  EXPECT_EQ(fake.calls("load "), (std::vector<std::string>{"load math", "load misc"}));
  restorer.reset();
  const auto log = fake.calls("");
  EXPECT_EQ(std::vector<std::string>(log.end() - 4, log.end()),
            (std::vector<std::string>{"destroy exec", "destroy exec", "unload", "unload"}));
  fake.table().cuLibraryUnload(unused);
}

TEST_F(PipelineTest, ManyThreadsManyGraphs) {
  const std::vector<uint32_t> indices = add_graphs(200);
  RestoreOptions with = options(indices);
  with.tuning.graph_threads = 3;
  restorer = restore(with);
  std::vector<std::thread> waiters;
  for (int t = 0; t < 4; ++t) {
    waiters.emplace_back([&, t] {
      for (size_t i = static_cast<size_t>(t); i < indices.size(); i += 4) {
        const auto exec = restorer->wait(indices[indices.size() - 1 - i]);
        ASSERT_TRUE(exec.ok());
        EXPECT_EQ(FakeDriver::of(exec.value()).graph->nodes[0]->arguments[0],
                  bytes_of(0x1000 + static_cast<uint64_t>(indices.size() - 1 - i)));
      }
    });
  }
  for (std::thread& waiter : waiters) waiter.join();
}

}  // namespace
}  // namespace foundry::graph::testing
