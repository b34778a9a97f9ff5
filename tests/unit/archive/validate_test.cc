// Semantic validation: the samples are valid, and every single wrong field is an error that names its record.
#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>

#include "csrc/abi/foundry_abi.h"
#include "csrc/archive/content.h"
#include "csrc/archive/reader.h"
#include "csrc/archive/validate.h"
#include "tests/unit/archive/support.h"

namespace foundry::archive::test {
namespace {

using ::testing::HasSubstr;

static_assert(kNodeKernel == uint32_t{CU_GRAPH_NODE_TYPE_KERNEL} &&
              kNodeMemcpy == uint32_t{CU_GRAPH_NODE_TYPE_MEMCPY} &&
              kNodeMemset == uint32_t{CU_GRAPH_NODE_TYPE_MEMSET} && kNodeGraph == uint32_t{CU_GRAPH_NODE_TYPE_GRAPH} &&
              kNodeEmpty == uint32_t{CU_GRAPH_NODE_TYPE_EMPTY} &&
              kNodeWaitEvent == uint32_t{CU_GRAPH_NODE_TYPE_WAIT_EVENT} &&
              kNodeEventRecord == uint32_t{CU_GRAPH_NODE_TYPE_EVENT_RECORD});
static_assert(kLastEdgeType == int{CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC});
static_assert(kLastZoneKind == uint32_t{FOUNDRY_ZONE_PRIVATE} && kLastImageFormat == uint32_t{FOUNDRY_IMAGE_PTX});
static_assert(sizeof(LaunchAttributeRecord::value) == sizeof(CUlaunchAttributeValue));

template <class Content>
struct Damaged {
  const char* section;  // that the error must name
  const char* reason;
  std::function<void(Content&)> change;
};

template <class Content>
Status check(const Content& content, FileKind kind) {
  TemporaryDirectory directory;
  content.write(directory.fd(), "f.fdry");
  return validate(must(File::open(directory.fd(), "f.fdry", kind)));
}

template <class Content>
void expect_all_found(const std::vector<Damaged<Content>>& list, FileKind kind) {
  for (size_t i = 0; i < list.size(); ++i) {
    Content content;
    list[i].change(content);
    const Status status = check(content, kind);
    ASSERT_FALSE(status.ok()) << "damage " << i << " of section " << list[i].section << ", " << list[i].reason;
    EXPECT_EQ(status.error().kind, ErrorKind::corrupt);
    EXPECT_THAT(status.error().text, HasSubstr("f.fdry, section " + std::string(list[i].section) + ", record "));
    EXPECT_THAT(status.error().text, HasSubstr(list[i].reason));
  }
}

TEST(Validate, SamplesAreValid) {
  for (const Status& status : {check(GraphsContent(), FileKind::graphs), check(MemoryContent(), FileKind::memory),
                               check(JournalContent(), FileKind::journal), check(GoldenContent(), FileKind::golden)}) {
    EXPECT_TRUE(status.ok()) << status.error().text;
  }
}

// A caching allocator puts tensors side by side; content is stored in blocks that do not know where one ends.
TEST(Validate, AGoldenBlockMayRunOnIntoTheNextInput) {
  GoldenContent golden;
  golden.inputs[1].fill = kNone;
  golden.content.resize(20, std::byte{5});
  golden.blocks[0].bytes = golden.blocks[0].stored_bytes = 20;
  const Status adjacent = check(golden, FileKind::golden);
  EXPECT_TRUE(adjacent.ok()) << adjacent.error().text;
  golden.inputs[1].address += 1;
  EXPECT_THAT(check(golden, FileKind::golden).error().text, HasSubstr("it belongs to no input"));
}

// Only graphs that were left out use it.
TEST(Validate, AnImageMayBeMissing) {
  GraphsContent graphs;
  graphs.images[1].bytes = 0;
  EXPECT_THAT(check(graphs, FileKind::graphs).error().text, HasSubstr("the image's size is impossible"));
  graphs.images[1].hash = {};
  EXPECT_TRUE(check(graphs, FileKind::graphs).ok());
}

// clang-format off: one kind of damage a line
TEST(Validate, EveryWrongFieldOfAGraphsFile) {
  using G = GraphsContent;
  expect_all_found<G>(
      {
          {"images", "size", [](G& g) { g.images[0].bytes = 0; }},
          {"images", "size", [](G& g) { g.images[1].bytes = ~uint64_t{0}; }},
          {"images", "format", [](G& g) { g.images[0].format = 0; }},
          {"images", "format", [](G& g) { g.images[0].format = 4; }},
          {"images", "reserved", [](G& g) { g.images[0].reserved = 1; }},
          {"images", "source lies outside", [](G& g) { g.images[0].source.offset = 0xffffff00; }},
          {"functions", "name is empty", [](G& g) { g.functions[0].name = {}; }},
          {"functions", "name lies outside", [](G& g) { g.functions[0].name.bytes = 60000; }},
          {"functions", "at most", [](G& g) { g.functions[0].name.bytes = 0xffffffff; }},
          {"functions", "image is 2", [](G& g) { g.functions[0].image = 2; }},
          {"functions", "params says", [](G& g) { g.functions[0].first_param = 4; }},
          {"functions", "params says", [](G& g) { g.functions[0].param_count = 0xffffffff; }},
          {"functions", "attributes says", [](G& g) { g.functions[1].first_attribute = 3; }},
          {"functions", "attributes says", [](G& g) { g.functions[0].attribute_count = 3; }},
          {"functions", "reserved", [](G& g) { g.functions[0].reserved = 1; }},
          {"functions", "overlap", [](G& g) { g.params[1].offset = 7; }},
          {"functions", "larger", [](G& g) { g.params[2].bytes = 0xffffffff; }},
          {"functions", "larger", [](G& g) { g.params[2].offset = 0xfffffff8; }},
          {"function_attributes", "impossible", [](G& g) { g.function_attributes[0].attribute = -1; }},
          {"function_attributes", "impossible", [](G& g) { g.function_attributes[1].attribute = 256; }},
          {"launch_attributes", "impossible", [](G& g) { g.launch_attributes[0].id = 256; }},
          {"launch_attributes", "reserved", [](G& g) { g.launch_attributes[1].reserved = 9; }},
          {"kernels", "function is 2", [](G& g) { g.kernels[0].function = 2; }},
          {"kernels", "zero", [](G& g) { g.kernels[0].grid[1] = 0; }},
          {"kernels", "zero", [](G& g) { g.kernels[0].block[2] = 0; }},
          {"kernels", "block is larger", [](G& g) { g.kernels[0].block[2] = 5; }},
          {"kernels", "block is larger", [](G& g) { g.kernels[0].block[0] = 0x80000000; }},
          {"kernels", "form", [](G& g) { g.kernels[0].argument_form = 3; }},
          {"kernels", "fewer argument bytes", [](G& g) { g.kernels[0].argument_bytes = 23; }},
          {"kernels", "fewer argument bytes", [](G& g) { g.kernels[1].argument_bytes = 63; }},
          {"kernels", "larger", [](G& g) { g.kernels[0].argument_bytes = 0xffffffff; }},
          {"kernels", "arguments says", [](G& g) { g.kernels[1].arguments = 25; }},
          {"kernels", "arguments says", [](G& g) { g.kernels[1].arguments = ~uint64_t{0} - 8; }},
          {"kernels", "attributes says", [](G& g) { g.kernels[0].first_attribute = 1; }},
          {"kernels", "attributes says", [](G& g) { g.kernels[0].attribute_count = 0xffffffff; }},
          {"memcpys", "source", [](G& g) { g.memcpys[0].source = ~uint64_t{0} - 100; }},
          {"memcpys", "destination", [](G& g) { g.memcpys[0].width_bytes = uint64_t{1} << 56; g.memcpys[0].source = 0; }},
          {"memcpys", "source", [](G& g) { g.memcpys[0].height = g.memcpys[0].source_pitch = uint64_t{1} << 40; }},
          {"memcpys", "source", [](G& g) { g.memcpys[0].source_z = ~uint64_t{0}; }},
          {"memcpys", "destination", [](G& g) { g.memcpys[0].destination_x = ~uint64_t{0}; }},
          {"memcpys", "flags", [](G& g) { g.memcpys[0].flags = 4; }},
          {"memcpys", "reserved", [](G& g) { g.memcpys[0].reserved = 1; }},
          {"memcpys", "source is host memory outside", [](G& g) { g.memcpys[0].flags = kSourceIsHost; }},
          {"memcpys", "source is host memory outside", [](G& g) { g.memcpys[1].width_bytes = 129; }},
          {"memcpys", "source is host memory outside", [](G& g) { g.memcpys[1].source = 0x7e0000002000; }},
          {"memcpys", "source is host memory outside", [](G& g) { g.memcpys[1].source_x = 65; }},
          {"memcpys", "source is host memory outside", [](G& g) { g.memcpys[1].depth = 2; g.memcpys[1].source_pitch = g.memcpys[1].source_height = 16; }},
          {"memcpys", "destination is host memory outside", [](G& g) { g.memcpys[1].flags = kSourceIsHost | kDestinationIsHost; }},
          {"host_ranges", "name is empty", [](G& g) { g.host_ranges[0].name = {}; }},
          {"host_ranges", "same name", [](G& g) { g.host_ranges[1].name = g.host_ranges[0].name; }},
          {"host_ranges", "no bytes", [](G& g) { g.host_ranges[0].bytes = 0; }},
          {"host_ranges", "addresses", [](G& g) { g.host_ranges[1].bytes = ~uint64_t{0}; }},
          {"host_ranges", "overlaps", [](G& g) { g.host_ranges[0].bytes = 257; }},
          {"memsets", "elements", [](G& g) { g.memsets[0].element_bytes = 3; }},
          {"memsets", "address space", [](G& g) { g.memsets[0].height = ~uint64_t{0}; }},
          {"memsets", "address space", [](G& g) { g.memsets[0].width = uint64_t{1} << 62; }},
          {"memsets", "address space", [](G& g) { g.memsets[0].destination = ~uint64_t{0}; }},
          {"graph_events", "same event", [](G& g) { g.events[1].flags = 0; }},
          {"graph_events", "same event", [](G& g) { g.events[1].name = {}; }},
          {"graph_events", "name lies outside", [](G& g) { g.events[0].name.offset = 0xffff0000; }},
          {"nodes", "type 3", [](G& g) { g.nodes[0].type = 3; }},
          {"nodes", "type 10", [](G& g) { g.nodes[0].type = 10; }},
          {"nodes", "payload is 2", [](G& g) { g.nodes[0].payload = 2; }},
          {"nodes", "payload is 2", [](G& g) { g.nodes[1].payload = 2; }},
          {"nodes", "payload is 1", [](G& g) { g.nodes[2].payload = 1; }},
          {"nodes", "payload is 4294967295", [](G& g) { g.nodes[3].payload = kNone; }},
          {"nodes", "payload is 2", [](G& g) { g.nodes[4].payload = 2; }},
          {"nodes", "payload is 3", [](G& g) { g.nodes[6].payload = 3; }},
          {"nodes", "empty node", [](G& g) { g.nodes[7].payload = 0; }},
          {"graphs", "name is empty", [](G& g) { g.graphs[0].name = {}; }},
          {"graphs", "same name", [](G& g) { g.graphs[1].name = g.graphs[0].name; }},
          {"graphs", "outputs lies outside", [](G& g) { g.graphs[0].outputs.offset = 100000; }},
          {"graphs", "nodes says", [](G& g) { g.graphs[2].first_node = 9; }},
          {"graphs", "nodes says", [](G& g) { g.graphs[0].node_count = 0xffffffff; }},
          {"graphs", "edges says", [](G& g) { g.graphs[1].edge_count = 4; }},
          {"graphs", "edges says", [](G& g) { g.graphs[0].first_edge = 0xffffffff; }},
          {"graphs", "flags", [](G& g) { g.graphs[0].flags = 8; }},
          {"graphs", "reserved", [](G& g) { g.graphs[0].reserved = 1; }},
          {"graphs", "generator_seed", [](G& g) { g.graphs[0].generator_seed = ~uint64_t{0}; }},
          {"graphs", "generator_offset", [](G& g) { g.graphs[0].generator_offset = uint64_t{1} << 60; }},
          {"graphs", "cycle", [](G& g) { g.edges[2].to = 0; }},
          {"graphs", "cycle", [](G& g) { g.edges[0].to = 0; }},
          {"graphs", "contains itself", [](G& g) { g.nodes[8] = {kNodeGraph, 2}; g.pointers.clear(); }},
          {"graphs", "contains itself", [](G& g) { g.nodes[8] = {kNodeGraph, 1}; g.graphs[1].flags = kGraphIsChild; g.pointers.pop_back(); }},
          {"graphs", "no child graph", [](G& g) { g.nodes[6].payload = 0; }},
          {"edges", "impossible", [](G& g) { g.edges[0].from = 4; }},
          {"edges", "impossible", [](G& g) { g.edges[5].to = 0xffffffff; }},
          {"edges", "impossible", [](G& g) { g.edges[1].type = 2; }},
          {"edges", "impossible", [](G& g) { g.edges[1].reserved[4] = 1; }},
          {"module_globals", "symbol is empty", [](G& g) { g.module_globals[0].symbol = {}; }},
          {"module_globals", "inside a character", [](G& g) { g.module_globals[1].symbol.bytes = 3; }},
          {"module_globals", "inside a character", [](G& g) { g.module_globals[1].symbol.offset += 3; g.module_globals[1].symbol.bytes -= 3; }},
          {"module_globals", "image is 7", [](G& g) { g.module_globals[0].image = 7; }},
          {"module_globals", "reserved", [](G& g) { g.module_globals[0].reserved = 1; }},
          {"module_globals", "no bytes", [](G& g) { g.module_globals[0].bytes = 0; }},
          {"module_globals", "content says", [](G& g) { g.module_globals[0].content = 1; }},
          {"module_globals", "addresses", [](G& g) { g.module_globals[0].address = ~uint64_t{0}; }},
          {"pointers", "graph is 3", [](G& g) { g.pointers[0].graph = 3; }},
          {"pointers", "node is 4", [](G& g) { g.pointers[0].node = 4; }},
          {"pointers", "param is 3", [](G& g) { g.pointers[0].param = 3; }},
          {"pointers", "param is 4294967280", [](G& g) { g.pointers[0].param = kPointerSource; }},
          {"pointers", "outside its parameter", [](G& g) { g.pointers[0].offset = 1; }},
          {"pointers", "outside its parameter", [](G& g) { g.pointers[0].param = 1; }},
          {"pointers", "outside its parameter", [](G& g) { g.pointers[4].offset = 0xfffffffc; }},
          {"pointers", "no such address", [](G& g) { g.pointers[2].param = 0; }},
          {"pointers", "no such address", [](G& g) { g.pointers[3].param = kPointerSource; }},
          {"pointers", "no such address", [](G& g) { g.pointers[3].node = 3; }},
          {"pointers", "class", [](G& g) { g.pointers[0].pointer_class = 0; }},
          {"pointers", "class", [](G& g) { g.pointers[0].pointer_class = 9; }},
          {"pointers", "target is 2", [](G& g) { g.pointers[1].target = 2; }},
          {"pointers", "target is 2", [](G& g) { g.pointers[6].target = 2; }},
          {"pointers", "outside its host range", [](G& g) { g.pointers[6].target = 1; }},
          {"pointers", "outside its host range", [](G& g) { g.pointers[7].target = 0; }},
      },
      FileKind::graphs);
}
// clang-format on

// clang-format off: one kind of damage a line
TEST(Validate, EveryWrongFieldOfAMemoryFile) {
  using M = MemoryContent;
  expect_all_found<M>(
      {
          {"zones", "name is empty", [](M& m) { m.zones[0].name = {}; }},
          {"zones", "same name", [](M& m) { m.zones[1].name = m.zones[0].name; }},
          {"zones", "kind", [](M& m) { m.zones[0].kind = 5; }},
          {"zones", "granularity", [](M& m) { m.zones[0].granularity = 0; }},
          {"zones", "granularity", [](M& m) { m.zones[0].granularity = 3 << 20; }},
          {"zones", "granularity", [](M& m) { m.zones[0].granularity = 1024; }},
          {"zones", "multiple", [](M& m) { m.zones[0].base += 4096; }},
          {"zones", "multiple", [](M& m) { m.zones[0].size += 4096; }},
          {"zones", "where zones can be", [](M& m) { m.zones[0].base = 0; }},
          {"zones", "where zones can be", [](M& m) { m.zones[0].size = 0; }},
          {"zones", "where zones can be", [](M& m) { m.zones[0].size = 0 - uint64_t{4 << 20}; }},
          {"zones", "where zones can be", [](M& m) { m.zones[0].base = 0x7fffffe00000; }},
          {"zones", "used_end", [](M& m) { m.zones[0].used_end = 0; }},
          {"zones", "used_end", [](M& m) { m.zones[0].used_end = ~uint64_t{0}; }},
          {"zones", "overlaps", [](M& m) { m.zones[1].base = m.zones[0].base + (2 << 20); m.zones[1].used_end = m.zones[1].base; }},
          {"allocations", "zone is 2", [](M& m) { m.allocations[0].zone = 2; }},
          {"allocations", "inside its zone", [](M& m) { m.allocations[0].zone = 1; }},
          {"allocations", "inside its zone", [](M& m) { m.allocations[1].bytes = ~uint64_t{0}; }},
          {"allocations", "inside its zone", [](M& m) { m.allocations[1].bytes = 0; }},
          {"allocations", "used part", [](M& m) { m.allocations[1].address += 7 << 20; }},
          {"allocations", "overlaps", [](M& m) { m.allocations[1].address -= 4096; }},
          {"allocations", "reserved", [](M& m) { m.allocations[1].reserved = 1; }},
          {"mapped", "multiple", [](M& m) { m.mapped[1].address += 4096; }},
          {"mapped", "multiple", [](M& m) { m.mapped[1].bytes -= 4096; }},
          {"mapped", "inside its zone", [](M& m) { m.mapped[0].zone = 0; }},
          {"mapped", "inside its zone", [](M& m) { m.mapped[1].bytes = uint64_t{1} << 63; }},
          {"mapped", "zone is 9", [](M& m) { m.mapped[1].zone = 9; }},
          {"mapped", "overlaps", [](M& m) { m.mapped[1].address = m.mapped[0].address; }},
          {"mapped", "reserved", [](M& m) { m.mapped[0].reserved = 1; }},
          {"content_blocks", "not mapped", [](M& m) { m.content_blocks[0].address = 0x140000400000; }},
          {"content_blocks", "not mapped", [](M& m) { m.content_blocks[0].address = 0x13fffffff000; }},
          {"content_blocks", "not mapped", [](M& m) { m.content_blocks[0].address = 0x1400003ff800; }},
          {"content_blocks", "overlaps", [](M& m) { m.content_blocks[0].address = m.content_blocks[1].address + 100; }},
          {"content_blocks", "impossible", [](M& m) { m.content_blocks[0].bytes = 0; }},
          {"content_blocks", "impossible", [](M& m) { m.content_blocks[0].bytes = kContentUnitBytes + 1; }},
          {"content_blocks", "impossible", [](M& m) { m.content_blocks[0].address = ~uint64_t{0} - 10; }},
          {"content_blocks", "outside section content", [](M& m) { m.content_blocks[0].stored = 1; }},
          {"content_blocks", "outside section content", [](M& m) { m.content_blocks[0].stored = ~uint64_t{0}; }},
          {"content_blocks", "sizes do not agree", [](M& m) { m.content_blocks[0].stored_bytes = 4095; }},
          {"content_blocks", "sizes do not agree", [](M& m) { m.content_blocks[0].decoded_offset = 1; }},
          {"content_blocks", "encoding 3", [](M& m) { m.content_blocks[0].encoding = 3; }},
          {"content_blocks", "another encoding", [](M& m) { m.content_blocks[1].encoding = 2; }},
          {"content_blocks", "zstd frame", [](M& m) { m.content_blocks[0].encoding = 2; }},
          {"storages", "addresses", [](M& m) { m.storages[0].bytes = ~uint64_t{0}; }},
          {"storages", "addresses", [](M& m) { m.storages[1].address = uint64_t{1} << 56; }},
          {"tensors", "name is empty", [](M& m) { m.tensors[0].name = {}; }},
          {"tensors", "name is empty", [](M& m) { m.tensors[3].name = {}; }},
          {"tensors", "same name", [](M& m) { m.tensors[1].name = m.tensors[0].name; }},
          {"tensors", "dtype is empty", [](M& m) { m.tensors[2].dtype = {}; }},
          {"tensors", "dtype lies outside", [](M& m) { m.tensors[2].dtype.offset = 5000; }},
          {"tensors", "flags", [](M& m) { m.tensors[0].flags = 0; }},
          {"tensors", "flags", [](M& m) { m.tensors[0].flags = 16; }},
          {"tensors", "constant and mutable", [](M& m) { m.tensors[0].flags = kConstant | kMutable; }},
          {"tensors", "storage is 2", [](M& m) { m.tensors[0].storage = 2; }},
          {"tensors", "inside its storage", [](M& m) { m.tensors[0].address -= 1; }},
          {"tensors", "inside its storage", [](M& m) { m.tensors[0].bytes += 1; }},
          {"tensors", "inside its storage", [](M& m) { m.tensors[0].bytes = ~uint64_t{0}; }},
          {"tensors", "too many dimensions", [](M& m) { m.tensors[0].dim_count = 0x80000001; }},
          {"tensors", "dims says", [](M& m) { m.tensors[0].first_dim = 5; }},
          {"tensors", "dims says", [](M& m) { m.tensors[1].first_dim = 0xffffffff; }},
          {"tensors", "items", [](M& m) { m.tensors[0].item_bytes = 0; }},
          {"tensors", "items", [](M& m) { m.tensors[0].item_bytes = 65; }},
          {"tensors", "negative", [](M& m) { m.dims[0] = -1; }},
          {"tensors", "negative", [](M& m) { m.dims[2] = -8; }},
          {"tensors", "beyond its bytes", [](M& m) { m.dims[2] = 1 << 20; }},
          {"tensors", "beyond its bytes", [](M& m) { m.tensors[1].bytes = 39; }},
          {"tensors", "larger than any memory", [](M& m) { m.dims[0] = m.dims[1] = int64_t{1} << 32; }},
          {"tensors", "larger than any memory", [](M& m) { m.dims[2] = int64_t{1} << 62; }},
          {"tensors", "larger than any memory", [](M& m) { m.dims[0] = INT64_MAX; m.dims[2] = 0; }},
          {"tensors", "anchor is 4", [](M& m) { m.tensors[2].anchor = 4; }},
          {"tensors", "no anchor tensor", [](M& m) { m.tensors[3].anchor = 2; }},
      },
      FileKind::memory);
}
// clang-format on

TEST(Validate, EveryWrongFieldOfAJournal) {
  using J = JournalContent;
  expect_all_found<J>(
      {
          {"journal", "kind", [](J& j) { j.journal[0].kind = 0; }},
          {"journal", "zone is 1", [](J& j) { j.journal[0].zone = 1; }},
          {"journal", "entry_point lies outside", [](J& j) { j.journal[1].entry_point.offset = 999; }},
          {"journal", "stack is 2", [](J& j) { j.journal[0].stack = 3; }},
          {"journal", "stack is 4294967294", [](J& j) { j.journal[0].stack = kNone; }},
          {"journal_stacks", "frames says 3 from 0 on", [](J& j) { j.stacks[0].frame_count = 3; }},
          {"journal_stacks", "frames says 1 from 4294967295 on", [](J& j) { j.stacks[1].first_frame = kNone; }},
          {"journal_stacks", "python_frames says 1 from 1 on", [](J& j) { j.stacks[1].first_python_frame = 1; }},
          {"journal_stacks", "more frames", [](J& j) { j.stacks[0].frame_count = kNone; }},
          {"journal_stacks", "more frames", [](J& j) { j.stacks[0].python_frame_count = kMostStackFrames + 1; }},
          {"journal_frames", "module is 1", [](J& j) { j.frames[0].module = 1; }},
          {"journal_frames", "reserved", [](J& j) { j.frames[0].reserved = 1; }},
          {"journal_modules", "name is empty", [](J& j) { j.modules[0].name.bytes = 0; }},
          {"journal_modules", "a path", [](J& j) { j.modules[0].name = j.strings.add("/home/me/engine.so"); }},
          {"journal_modules", "not hexadecimal", [](J& j) { j.modules[0].build_id = j.strings.add("AB"); }},
          {"journal_modules", "at most 64", [](J& j) { j.modules[0].build_id = j.strings.add(std::string(65, 'a')); }},
          {"journal_python_frames", "reserved", [](J& j) { j.python_frames[0].reserved = 1; }},
          {"journal_python_frames", "function lies outside", [](J& j) { j.python_frames[0].function.bytes = 999; }},
          {"journal_python_frames", "file lies outside", [](J& j) { j.python_frames[0].file.offset = 999; }},
          {"journal_zones", "kind", [](J& j) { j.zones[0].kind = 0; }},
      },
      FileKind::journal);
}

TEST(Validate, EveryWrongFieldOfGoldenRuns) {
  using G = GoldenContent;
  expect_all_found<G>(
      {
          {"golden_runs", "name is empty", [](G& g) { g.runs[0].name.bytes = 0; }},
          {"golden_runs", "first_output says 3 from 2 on", [](G& g) { g.runs[1].output_count = 3; }},
          {"golden_runs", "first_output says 2 from 4294967295 on", [](G& g) { g.runs[1].first_output = kNone; }},
          {"golden_runs", "another run", [](G& g) { g.runs[1].first_output = 1; }},
          {"golden_outputs", "comparison", [](G& g) { g.outputs[0].comparison = 0; }},
          {"golden_outputs", "comparison", [](G& g) { g.outputs[0].comparison = 4; }},
          {"golden_outputs", "no finite number", [](G& g) { g.outputs[1].spread = std::bit_cast<uint64_t>(-1.0); }},
          {"golden_outputs", "no finite number", [](G& g) { g.outputs[1].spread = ~uint64_t{0}; }},
          {"golden_outputs", "values says 4 from 5 on", [](G& g) { g.outputs[1].values = 5; }},
          {"golden_outputs", "values says", [](G& g) { g.outputs[1].bytes = ~uint64_t{0}; }},
          {"golden_outputs", "another output", [](G& g) { g.outputs[1].values = 1; }},
          {"golden_outputs", "does not use", [](G& g) { g.outputs[0].spread = 1; }},
          {"golden_outputs", "does not use", [](G& g) { g.outputs[2].values = 4; }},
          {"golden_inputs", "reserved", [](G& g) { g.inputs[0].reserved = 1; }},
          {"golden_inputs", "empty", [](G& g) { g.inputs[0].bytes = 0; }},
          {"golden_inputs", "no range of addresses", [](G& g) { g.inputs[1].bytes = ~uint64_t{0}; }},
          {"golden_inputs", "no byte", [](G& g) { g.inputs[1].fill = 256; }},
          {"golden_inputs", "behind the one before", [](G& g) { g.inputs[1].address -= 1; }},
          {"golden_blocks", "no input", [](G& g) { g.blocks[0].address += 1; }},
          {"golden_blocks", "no input", [](G& g) { g.inputs[0].fill = 0; }},
          {"golden_run_inputs", "reserved", [](G& g) { g.run_inputs[0].reserved = 1; }},
          {"golden_run_inputs", "run is 2", [](G& g) { g.run_inputs[2].run = 2; }},
          {"golden_run_inputs", "before that of the one before", [](G& g) { g.run_inputs[0].run = 1; }},
          {"golden_run_inputs", "empty", [](G& g) { g.run_inputs[1].bytes = 0; }},
          {"golden_run_inputs", "no range of addresses", [](G& g) { g.run_inputs[1].bytes = ~uint64_t{0}; }},
          {"golden_run_inputs", "content says 8 from 5 on", [](G& g) { g.run_inputs[1].content = 5; }},
      },
      FileKind::golden);
  G far;
  far.blocks[0].stored = 1;
  EXPECT_FALSE(check(far, FileKind::golden).ok()) << "content that is not there";
}

TEST(Validate, StringsThatAreNoText) {
  TemporaryDirectory directory;
  GraphsContent content;
  content.write(directory.fd(), "g.fdry");
  std::vector<std::byte> file = read_file(directory.at("g.fdry"));
  FileHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  for (uint32_t i = 0; i < header.section_count; ++i) {
    std::byte* at = file.data() + header.directory_offset + i * sizeof(SectionEntry);
    SectionEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.type != static_cast<uint32_t>(Section::graphs_strings)) continue;
    file[entry.offset] = std::byte{0};
    entry.hash = section_hash(std::span(file).subspan(entry.offset, entry.bytes));
    std::memcpy(at, &entry, sizeof entry);
  }
  seal(file);
  write_file(directory.at("g.fdry"), file);
  const Status status = validate(must(File::open(directory.fd(), "g.fdry", FileKind::graphs)));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().text, HasSubstr("not UTF-8"));
}

TEST(Validate, ChildGraphsMustNotExplode) {
  GraphsContent content;
  content.pointers.clear();
  content.nodes.clear();
  content.edges.clear();
  content.graphs.clear();
  // Each graph holds the next one eight times: 8^10 nodes when expanded.
  constexpr uint32_t kDepth = 10;
  for (uint32_t i = 0; i <= kDepth; ++i) {
    GraphRecord graph{};
    if (i == 0) graph.name = content.strings.add("outer");
    graph.flags = i == 0 ? 0u : uint32_t{kGraphIsChild};
    graph.first_node = static_cast<uint32_t>(content.nodes.size());
    graph.node_count = 8;
    content.graphs.push_back(graph);
    for (int k = 0; k < 8; ++k)
      content.nodes.push_back(i < kDepth ? NodeRecord{kNodeGraph, i + 1} : NodeRecord{kNodeEmpty, kNone});
  }
  Status status = check(content, FileKind::graphs);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().text, HasSubstr("too many nodes"));

  // A chain that is too deep.
  content.nodes.clear();
  content.graphs.clear();
  for (uint32_t i = 0; i < 1000; ++i) {
    content.graphs.push_back({i == 0 ? content.strings.add("outer") : StringRef{},
                              {},
                              i,
                              1,
                              0,
                              0,
                              i == 0 ? 0u : uint32_t{kGraphIsChild},
                              0,
                              0,
                              0,
                              0});
    content.nodes.push_back(i < 999 ? NodeRecord{kNodeGraph, i + 1} : NodeRecord{kNodeEmpty, kNone});
  }
  status = check(content, FileKind::graphs);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().text, HasSubstr("nested too deeply"));
}

TEST(Validate, SharedRangesDoNotMultiplyTheWork) {
  GraphsContent content;
  content.pointers.clear();
  content.graphs.clear();
  content.nodes.assign(1 << 14, NodeRecord{kNodeEmpty, kNone});
  content.edges.clear();
  for (uint32_t i = 0; i < (1 << 13); ++i) {
    content.graphs.push_back({content.strings.add("g" + std::to_string(i)), {}, 0, 1 << 14, 0, 0, 0, 0, 0, 0, 0});
  }
  const Status status = check(content, FileKind::graphs);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().text, HasSubstr("than the format allows"));
}

TEST(Validate, PairOfGraphsAndMemory) {
  TemporaryDirectory directory;
  MemoryContent().write(directory.fd(), "memory.fdry");
  const File memory = must(File::open(directory.fd(), "memory.fdry", FileKind::memory));
  int files = 0;
  auto pair = [&](const std::function<void(GraphsContent&)>& change) {
    GraphsContent content;
    change(content);
    const std::string name = "graphs" + std::to_string(files++);
    content.write(directory.fd(), name);
    return validate_pair(must(File::open(directory.fd(), name, FileKind::graphs)), memory);
  };
  EXPECT_TRUE(pair([](GraphsContent&) {}).ok());
  EXPECT_TRUE(pair([](GraphsContent& g) { g.pointers[0].target = 1; }).ok());
  EXPECT_FALSE(pair([](GraphsContent& g) { g.pointers[0].target = 2; }).ok()) << "an output is no anchor";
  EXPECT_FALSE(pair([](GraphsContent& g) { g.pointers[0].target = 4; }).ok());
  EXPECT_FALSE(pair([](GraphsContent& g) { g.pointers[0].target = kNone; }).ok());
  EXPECT_TRUE(pair([](GraphsContent& g) { g.graphs[0].generator_seed = g.graphs[0].generator_offset = 0; }).ok());
  const Status outside = pair([](GraphsContent& g) { g.graphs[0].generator_offset = 0x7f0000000000; });
  ASSERT_FALSE(outside.ok());
  EXPECT_THAT(outside.error().text, HasSubstr("generator"));
}

TEST(Validate, GoldenRunsFitTheOtherFiles) {
  TemporaryDirectory directory;
  int files = 0;
  const auto all = [&](const std::function<void(GoldenContent&, GraphsContent&, MemoryContent&)>& change) {
    GoldenContent golden;
    GraphsContent graphs;
    MemoryContent memory;
    change(golden, graphs, memory);
    const std::string number = std::to_string(files++);
    golden.write(directory.fd(), "golden" + number);
    graphs.write(directory.fd(), "graphs" + number);
    memory.write(directory.fd(), "memory" + number);
    return validate_golden_with(must(File::open(directory.fd(), "golden" + number, FileKind::golden)),
                                must(File::open(directory.fd(), "graphs" + number, FileKind::graphs)),
                                must(File::open(directory.fd(), "memory" + number, FileKind::memory)));
  };
  using G = GoldenContent;
  using R = GraphsContent;
  using M = MemoryContent;
  const Status fine = all([](G&, R&, M&) {});
  EXPECT_TRUE(fine.ok()) << fine.error().text;
  const std::vector<std::pair<const char*, std::function<void(G&, R&, M&)>>> wrong = {
      {"graph is 99", [](G& g, R&, M&) { g.runs[0].graph = 99; }},
      {"nobody restores", [](G&, R& r, M&) { r.graphs[0].flags |= kGraphLeftOut; }},
      {"another name", [](G& g, R&, M&) { g.runs[0].name = g.strings.add("other"); }},
      {"tensor is 4", [](G& g, R&, M&) { g.outputs[0].tensor = 4; }},
      {"more bytes than its tensor", [](G& g, R&, M&) { g.outputs[0].bytes = 5; }},
      {"not the memory of mutable tensors", [](G& g, R&, M&) { g.inputs[1].bytes = 25; }},
      {"not the memory of mutable tensors", [](G& g, R&, M&) { g.inputs[0].address -= 8; }},
      {"not the memory of mutable tensors", [](G& g, R&, M&) { g.run_inputs[1].address += 64; }},
      {"not the memory of mutable tensors", [](G&, R&, M& m) { m.tensors[1].flags = kConstant; }},
  };
  for (const auto& [reason, change] : wrong) {
    const Status status = all(change);
    ASSERT_FALSE(status.ok()) << reason;
    EXPECT_THAT(status.error().text, HasSubstr(reason));
  }
}

}  // namespace
}  // namespace foundry::archive::test
