// Common ground of the graph tests: a fake driver with two images, and a way from snapshot to restore.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "csrc/graph/abi_images.h"
#include "csrc/graph/restore.h"
#include "csrc/graph/snapshot.h"
#include "tests/unit/graph/fake_abi.h"
#include "tests/unit/graph/fake_driver.h"

namespace foundry::graph::testing {

inline constexpr const char* kScale = "_Z5scalePffi";   // scale(float*, float, int)
inline constexpr const char* kStruct = "_Z4pack4Pack";  // pack(Pack): one by-value struct of 40 bytes
inline constexpr const char* kPlain = "_Z5plainv";      // plain()

template <class T>
std::vector<uint8_t> bytes_of(const T& value) {
  std::vector<uint8_t> out(sizeof value);
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

inline std::vector<uint8_t> words(std::initializer_list<uint64_t> values) {
  std::vector<uint8_t> out(values.size() * 8);
  std::memcpy(out.data(), values.begin(), out.size());
  return out;
}

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not contain \"" << part << "\"";
}
#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(::foundry::graph::testing::contains(text, part))

class GraphTest : public ::testing::Test {
 protected:
  GraphTest() {
    fake.images["math"] = {{{kScale, {{{0, 8}, {8, 4}, {12, 4}}, {}}}, {kStruct, {{{0, 40}}, {}}}}, {}};
    fake.images["misc"] = {{{kPlain, {{}, {}}}}, {}};
    math = fake.load("math");
    misc = fake.load("misc");
    hook.add_library(math);
    hook.add_library(misc);
    images = std::make_unique<AbiImages>(fake.table(), hook.abi());
    snapshot = std::make_unique<Snapshotter>(fake.table(), *images);
  }
  ~GraphTest() override {
    restorer.reset();
    for (CUgraph graph : graphs) fake.table().cuGraphDestroy(graph);
    fake.table().cuLibraryUnload(math);
    fake.table().cuLibraryUnload(misc);
    EXPECT_EQ(fake.live_graphs, 0);
    EXPECT_EQ(fake.live_execs, 0);
    EXPECT_EQ(fake.live_libraries, 0);
    EXPECT_EQ(fake.live_events, events_made);
    EXPECT_EQ(fake.live_streams, 0);
    EXPECT_EQ(fake.violations, 0);
    for (CUevent event : events) fake.table().cuEventDestroy(event);
  }

  CUgraph new_graph() {
    graphs.push_back(fake.graph());
    return graphs.back();
  }
  CUevent new_event() {
    CUevent event = nullptr;
    EXPECT_EQ(fake.table().cuEventCreate(&event, 0), CUDA_SUCCESS);
    events.push_back(event);
    ++events_made;
    return event;
  }
  FakeNode* add_scale(CUgraph graph, uint64_t pointer = 0x1000, float factor = 2, int count = 3,
                      Shown shown = Shown::both) {
    return fake.add_kernel(graph, fake.kernel(math, kScale), {bytes_of(pointer), bytes_of(factor), bytes_of(count)},
                           shown);
  }
  // Adds `count` graphs of one kernel node each, named "0", "1", ...
  std::vector<uint32_t> add_graphs(int count) {
    std::vector<uint32_t> indices;
    for (int i = 0; i < count; ++i) {
      CUgraph graph = new_graph();
      add_scale(graph, 0x1000u + static_cast<uint64_t>(i));
      indices.push_back(snapshot->add(graph, std::to_string(i)).value());
    }
    return indices;
  }
  FakeNode* add_plain(CUgraph graph) { return fake.add_kernel(graph, fake.kernel(misc, kPlain), {}); }

  // Images of the snapshot, by what the fake loaded them from.
  ImageProvider provider() {
    return [this](uint32_t index) -> Result<ImageBytes> {
      const void* handle = images->image(snapshot->image_ids()[index])->handle;
      const std::string& name = static_cast<const FakeLibrary*>(handle)->image;
      auto copy = std::make_shared<std::vector<std::byte>>(name.size() + 1);
      std::memcpy(copy->data(), name.c_str(), copy->size());
      return ImageBytes{*copy, copy};
    };
  }
  RestoreOptions options(std::vector<uint32_t> order) {
    RestoreOptions options;
    options.context = fake.context();
    options.order = std::move(order);
    // One after the other, so that tests know who does what when.
    options.tuning.graph_threads = 1;
    return options;
  }
  std::unique_ptr<Restorer> restore(RestoreOptions with) {
    auto started = Restorer::start(fake.table(), snapshot->tables().view(), provider(), std::move(with));
    EXPECT_TRUE(started.ok()) << started.error().text;
    return started.ok() ? std::move(started).value() : nullptr;
  }
  // Snapshot of `graph`, restored: the graph inside the exec.
  FakeGraph& round_trip(CUgraph graph) {
    const auto index = snapshot->add(graph, "g" + std::to_string(snapshot->tables().graphs.size()));
    EXPECT_TRUE(index.ok()) << index.error().text;
    restorer.reset();
    restorer = restore(options({index.value()}));
    const auto exec = restorer->wait(index.value());
    EXPECT_TRUE(exec.ok()) << exec.error().text;
    return *FakeDriver::of(exec.value()).graph;
  }
  std::string refusal(CUgraph graph, const std::string& name = "decode/8") {
    const auto index = snapshot->add(graph, name);
    return index.ok() ? "no error" : index.error().text;
  }

  FakeDriver fake;
  FakeAbi hook;
  CUlibrary math = nullptr, misc = nullptr;
  std::unique_ptr<AbiImages> images;
  std::unique_ptr<Snapshotter> snapshot;
  std::unique_ptr<Restorer> restorer;
  std::vector<CUgraph> graphs;
  std::vector<CUevent> events;
  int events_made = 0;
};

}  // namespace foundry::graph::testing
