// Semantic validation of files with random damage: it answers, and what it accepts is safe to walk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "csrc/archive/content.h"
#include "csrc/archive/reader.h"
#include "csrc/archive/validate.h"
#include "tests/unit/archive/support.h"

namespace foundry::archive::test {
namespace {

using ::testing::HasSubstr;

// Random changes with right hashes: validation must answer, and what it accepts must be safe to walk.
template <FileKind kind, class Content>
void fuzz(uint32_t rounds) {
  TemporaryDirectory directory;
  Content().write(directory.fd(), "f.fdry");
  const std::vector<std::byte> good = read_file(directory.at("f.fdry"));
  FileHeader header;
  std::memcpy(&header, good.data(), sizeof header);
  std::vector<SectionEntry> entries(header.section_count);
  std::memcpy(entries.data(), good.data() + header.directory_offset, entries.size() * sizeof(SectionEntry));
  std::mt19937_64 random(20240607);
  uint32_t refused = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    std::vector<std::byte> file = good;
    std::vector<SectionEntry> changed = entries;
    for (uint64_t k = random() % 3 + 1; k > 0; --k) {
      SectionEntry& entry = changed[random() % changed.size()];
      if (entry.bytes == 0) continue;
      const uint64_t width = std::min<uint64_t>(random() % 2 == 0 ? 4 : 8, entry.bytes);
      const uint64_t at = entry.offset + (random() % (entry.bytes - width + 1)) / width * width;
      static constexpr uint64_t kNasty[] = {
          0, 1, 0xff, 0xffffffff, 0xffffffffffffffff, 0x7fffffffffffffff, 0x8000000000000000, 0x80000000};
      const uint64_t value = random() % 2 == 0 ? kNasty[random() % std::size(kNasty)] : random() % 100;
      std::memcpy(file.data() + at, &value, width);
      entry.hash = section_hash(std::span(file).subspan(entry.offset, entry.bytes));
    }
    std::memcpy(file.data() + header.directory_offset, changed.data(), changed.size() * sizeof(SectionEntry));
    seal(file);
    write_file(directory.at("f.fdry"), file);
    const File opened = must(File::open(directory.fd(), "f.fdry", kind));
    const Status status = validate(opened);
    if (!status.ok()) {
      ++refused;
      EXPECT_THAT(status.error().text, HasSubstr("f.fdry"));
      continue;
    }
    uint64_t walked = 0;
    if constexpr (kind == FileKind::graphs) {
      for (const GraphRecord& graph : opened.section<Section::graphs>()) {
        for (const NodeRecord& node : opened.section<Section::nodes>().subspan(graph.first_node, graph.node_count)) {
          if (node.type != kNodeKernel) continue;
          const KernelRecord& kernel = opened.section<Section::kernels>()[node.payload];
          const auto arguments = opened.section<Section::arguments>().subspan(kernel.arguments, kernel.argument_bytes);
          const FunctionRecord& function = opened.section<Section::functions>()[kernel.function];
          for (const ParamRecord& param :
               opened.section<Section::params>().subspan(function.first_param, function.param_count)) {
            for (const std::byte b : arguments.subspan(param.offset, param.bytes))
              walked += std::to_integer<uint64_t>(b);
          }
        }
      }
    } else if constexpr (kind == FileKind::journal) {
      const auto stacks = opened.section<Section::journal_stacks>();
      const auto frames = opened.section<Section::journal_frames>();
      const auto python_frames = opened.section<Section::journal_python_frames>();
      const auto modules = opened.section<Section::journal_modules>();
      for (const JournalRecord& record : opened.section<Section::journal>()) {
        walked += opened.view(record.entry_point).size();
        if (record.stack == 0) continue;
        const StackRecord& stack = stacks[record.stack - 1];
        for (const FrameRecord& frame : frames.subspan(stack.first_frame, stack.frame_count)) {
          if (frame.module != kNone) walked += must(opened.text(modules[frame.module].name)).size();
        }
        for (const PythonFrameRecord& frame :
             python_frames.subspan(stack.first_python_frame, stack.python_frame_count)) {
          walked += must(opened.text(frame.function)).size() + must(opened.text(frame.file)).size();
        }
      }
    } else if constexpr (kind == FileKind::golden) {
      const auto values = opened.section<Section::golden_values>();
      for (const GoldenRunRecord& run : opened.section<Section::golden_runs>()) {
        walked += must(opened.text(run.name)).size();
        const auto outputs = opened.section<Section::golden_outputs>();
        for (const GoldenOutputRecord& output : outputs.subspan(run.first_output, run.output_count)) {
          if (output.comparison != static_cast<uint32_t>(Comparison::spread)) continue;
          for (const std::byte b : values.subspan(output.values, output.bytes)) walked += std::to_integer<uint64_t>(b);
        }
      }
      for (const auto& unit :
           must(content_units(opened.section<Section::golden_blocks>(), opened.section<Section::golden_content>()))) {
        std::vector<std::byte> out(unit.decoded_bytes);
        static_cast<void>(decode_unit(unit, opened.section<Section::golden_content>(), out).ok());
      }
    } else {
      for (const auto& unit :
           must(content_units(opened.section<Section::content_blocks>(), opened.section<Section::content>()))) {
        std::vector<std::byte> out(unit.decoded_bytes);
        static_cast<void>(decode_unit(unit, opened.section<Section::content>(), out).ok());
        walked += out.size();
      }
      for (const TensorRecord& tensor : opened.section<Section::tensors>()) {
        for (const int64_t dim : opened.section<Section::dims>().subspan(tensor.first_dim, 2 * tensor.dim_count))
          walked += static_cast<uint64_t>(dim);
      }
    }
    EXPECT_GT(walked, 0u);
  }
  EXPECT_GT(refused, rounds / 4) << "most changes must be noticed";
}

TEST(Validate, RandomGraphsFiles) { fuzz<FileKind::graphs, GraphsContent>(4000); }
TEST(Validate, RandomMemoryFiles) { fuzz<FileKind::memory, MemoryContent>(4000); }
TEST(Validate, RandomJournalFiles) { fuzz<FileKind::journal, JournalContent>(4000); }
TEST(Validate, RandomGoldenFiles) { fuzz<FileKind::golden, GoldenContent>(4000); }

}  // namespace
}  // namespace foundry::archive::test
