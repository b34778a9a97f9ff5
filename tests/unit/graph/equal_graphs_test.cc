#include "csrc/graph/equal_graphs.h"

#include <functional>

#include "tests/unit/graph/fixture.h"

namespace foundry::graph::testing {
namespace {

class EqualGraphsTest : public GraphTest {
 protected:
  // A graph of two kernels in a row, changed by `change`.
  uint32_t add(const std::string& name, const std::function<void(CUgraph, FakeNode*, FakeNode*)>& change = {}) {
    CUgraph graph = new_graph();
    FakeNode* first = add_scale(graph, 0x1000, 2, 3);
    FakeNode* second = add_scale(graph, 0x2000, 4, 5);
    first->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = -1;
    fake.add_edge(graph, first, second);
    if (change) change(graph, first, second);
    const auto index = snapshot->add(graph, name);
    EXPECT_TRUE(index.ok()) << index.error().text;
    return index.value();
  }
  std::vector<uint32_t> firsts(const std::vector<uint32_t>& order) {
    return first_equals(snapshot->tables().view(), order);
  }
};

TEST_F(EqualGraphsTest, EqualOnesHaveOneExec) {
  const uint32_t a = add("a"), b = add("b"), c = add("c");
  EXPECT_EQ(firsts({b, a, c}), (std::vector<uint32_t>{b, b, b}));
  EXPECT_EQ(firsts({c}), (std::vector<uint32_t>{a, b, c})) << "only what is restored stands for others";
  restorer = restore(options({b, a, c}));
  for (const uint32_t graph : {a, b, c}) {
    ASSERT_TRUE(restorer->wait(graph).ok());
    EXPECT_EQ(restorer->ready(graph), restorer->ready(b));
    EXPECT_TRUE(restorer->launch(graph, nullptr).ok());
  }
  EXPECT_TRUE(restorer->wait_all().ok());
  EXPECT_EQ(FakeDriver::of(restorer->ready(a)).launches, 3);
  EXPECT_EQ(restorer->stats().execs, 1u);
  fake.failures["cuGraphLaunch"] = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_CONTAINS(restorer->launch(c, nullptr).error().text, "graph c: cuGraphLaunch failed");
}

TEST_F(EqualGraphsTest, EachHasItsOwnOnDemand) {
  const uint32_t a = add("a"), b = add("b");
  RestoreOptions apart = options({a, b});
  apart.tuning.share_execs = false;
  restorer = restore(std::move(apart));
  ASSERT_TRUE(restorer->wait_all().ok());
  EXPECT_NE(restorer->ready(a), restorer->ready(b));
}

TEST_F(EqualGraphsTest, AnyDifferenceKeepsThemApart) {
  add("a");
  add("argument", [&](CUgraph, FakeNode*, FakeNode* second) { second->arguments[2] = bytes_of(6); });
  add("grid", [&](CUgraph, FakeNode* first, FakeNode*) { first->launch.gridDimZ = 2; });
  add("block", [&](CUgraph, FakeNode* first, FakeNode*) { first->launch.blockDimY = 2; });
  add("shared memory", [&](CUgraph, FakeNode*, FakeNode* second) { second->launch.sharedMemBytes = 512; });
  add("attribute",
      [&](CUgraph, FakeNode* first, FakeNode*) { first->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = -2; });
  add("another attribute",
      [&](CUgraph, FakeNode*, FakeNode* second) { second->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = -1; });
  add("another node", [&](CUgraph graph, FakeNode*, FakeNode*) { add_plain(graph); });
  add("another kernel", [&](CUgraph graph, FakeNode*, FakeNode* second) {
    fake.add_edge(graph, second, fake.add_kernel(graph, fake.kernel(math, kStruct), {words({1, 2, 3, 4, 5})}));
  });
  add("kind of edge", [&](CUgraph graph, FakeNode* first, FakeNode*) {
    fake.add_edge(graph, first, add_plain(graph), CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                  CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  });
  add("edge", [&](CUgraph graph, FakeNode* first, FakeNode*) { fake.add_edge(graph, first, add_plain(graph)); });
  const uint32_t drawing = add("random numbers");
  snapshot->tables().graphs[drawing].generator_increment = 4;
  const uint32_t words_apart = add("words of the generator");
  snapshot->tables().graphs[words_apart].generator_increment = 4;
  snapshot->tables().graphs[words_apart].generator_seed = 0x3000;
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < snapshot->tables().graphs.size(); ++i) order.push_back(i);
  EXPECT_EQ(firsts(order), order);
}

TEST_F(EqualGraphsTest, WordsThatLoadChangesAreCompared) {
  const uint32_t a = add("a"), b = add("b");
  archive::PointerRecord word{};
  word.value = 0x1000;
  word.pointer_class = static_cast<uint32_t>(archive::PointerClass::host);
  for (const uint32_t graph : {a, b}) {
    word.graph = graph;
    snapshot->tables().pointers.push_back(word);
  }
  EXPECT_EQ(firsts({a, b})[b], a);
  snapshot->tables().pointers.back().target = 1;
  EXPECT_EQ(firsts({a, b})[b], b);
  snapshot->tables().pointers.back().pointer_class = static_cast<uint32_t>(archive::PointerClass::padding);
  EXPECT_EQ(firsts({a, b})[b], b);
}

TEST_F(EqualGraphsTest, NodesOfOtherKindsAreNotShared) {
  for (const char* name : {"a", "b"}) {
    add(name, [&](CUgraph graph, FakeNode* first, FakeNode*) {
      fake.add_edge(graph, first, fake.add_node(graph, CU_GRAPH_NODE_TYPE_EMPTY));
    });
  }
  EXPECT_EQ(firsts({0, 1})[1], 0u) << "an empty node owns nothing";
  const CUevent event = new_event();
  for (const char* name : {"c", "d"}) {
    add(name, [&](CUgraph graph, FakeNode*, FakeNode*) {
      fake.add_node(graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD)->event = event;
    });
  }
  EXPECT_EQ(firsts({2, 3})[3], 3u);
}

}  // namespace
}  // namespace foundry::graph::testing
