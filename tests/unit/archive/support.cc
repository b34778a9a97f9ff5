#include "tests/unit/archive/support.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "csrc/archive/hash.h"
#include "csrc/archive/validate.h"

namespace foundry::archive::test {

TemporaryDirectory::TemporaryDirectory() {
  const char* base = std::getenv("TEST_TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/archive-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  fd_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto bytes = bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out) throw std::runtime_error("cannot write " + path);
}

GraphsContent::GraphsContent() {
  images = {{hash(bytes_of("first")), 5, 2, 0, strings.add("libfirst.so")}, {hash(bytes_of("second")), 6, 1, 0, {}}};
  params = {{0, 8}, {8, 4}, {16, 8}, {0, 64}};
  function_attributes = {{8, 65536}, {9, -1}};
  functions = {{strings.add("_Z3addPfi"), 0, 0, 3, 0, 2, 0}, {strings.add("nvjet"), 1, 3, 1, 2, 0, 0}};
  launch_attributes.resize(2);
  launch_attributes[0].id = 4;
  launch_attributes[0].value[0] = 2;
  launch_attributes[1].id = 8;
  for (int i = 0; i < 24 + 72; ++i) arguments.push_back(static_cast<std::byte>(i));
  kernels = {
      {0, {4, 1, 1}, {128, 2, 1}, 1024, static_cast<uint32_t>(ArgumentForm::params), 24, 0, 0, 2},
      {1, {1, 1, 1}, {32, 1, 1}, 0, static_cast<uint32_t>(ArgumentForm::extra), 72, 24, 2, 0},
  };
  MemcpyRecord copy{};
  copy.source = 0x100000000000;
  copy.destination = 0x100000001000;
  copy.width_bytes = 4096;
  copy.height = copy.depth = 1;
  memcpys = {copy};
  copy.source = 0x7e0000000080;
  copy.flags = kSourceIsHost;
  copy.width_bytes = 64;
  memcpys.push_back(copy);
  memsets = {{0x100000000000, 256, 64, 4, 7, 4}};
  events = {{strings.add("ready"), 3, 2}, {strings.add("ready"), 3, 2}};
  // decode/1: kernel -> copy -> memset -> event record; decode/2: event wait -> kernel -> child -> empty; child:
  // kernel, copy.
  nodes = {{kNodeKernel, 0}, {kNodeMemcpy, 0}, {kNodeMemset, 0},    {kNodeEventRecord, 0}, {kNodeWaitEvent, 1},
           {kNodeKernel, 1}, {kNodeGraph, 2},  {kNodeEmpty, kNone}, {kNodeKernel, 1},      {kNodeMemcpy, 1}};
  edges = {{0, 1, 0, 0, 0, {}}, {1, 2, 1, 0, 1, {}}, {2, 3, 0, 0, 0, {}},
           {0, 1, 0, 0, 0, {}}, {1, 2, 0, 0, 0, {}}, {2, 3, 0, 0, 0, {}}};
  graphs = {
      {strings.add("decode/1"), strings.add("[0, 1]"), 0, 4, 0, 3, kGraphUsesGenerator, 0, 8, 0x140000000200,
       0x140000000208},
      {strings.add("decode/2"), strings.add("[2]"), 4, 4, 3, 3, 0, 0, 0, 0, 0},
      {{}, {}, 8, 2, 6, 0, kGraphIsChild, 0, 0, 0, 0},
  };
  for (int i = 0; i < 16; ++i) global_content.push_back(static_cast<std::byte>(255 - i));
  module_globals = {
      {strings.add("counter"), 0, 0, 16, 0, 0x7f0000001000},
      {strings.add("größe"), 1, 0, 4, kContentUnchanged, 0x7f0000002000},
  };
  host_ranges = {{strings.add("staging"), 0x7e0000000000, 256}, {strings.add("results"), 0x7e0000000100, 4096}};
  pointers = {
      {0x100000000000, 0, 0, 0, 0, static_cast<uint32_t>(PointerClass::anchor), 0},
      {0x7f0000001000, 0, 0, 2, 0, static_cast<uint32_t>(PointerClass::module_global), 1},
      {0x100000000000, 0, 1, kPointerSource, 0, static_cast<uint32_t>(PointerClass::materialized), kNone},
      {0x100000000000, 0, 2, kPointerDestination, 0, static_cast<uint32_t>(PointerClass::rebuilt), kNone},
      {0x100000000000, 1, 1, 0, 56, static_cast<uint32_t>(PointerClass::padding), kNone},
      {0x100000000000, 1, 1, kPointerWindow, 0, static_cast<uint32_t>(PointerClass::materialized), kNone},
      {0x7e0000000080, 2, 1, kPointerSource, 0, static_cast<uint32_t>(PointerClass::host), 0},
      {0x7f0000003000, 2, 0, 0, 0, static_cast<uint32_t>(PointerClass::host), kNone},
  };
}

WrittenFile GraphsContent::write(int directory, const std::string& name) const {
  FileWriter file = must(FileWriter::create(directory, name, FileKind::graphs));
  file.strings() = strings;
  auto check = [](const Status& status) { ASSERT_TRUE(status.ok()) << status.error().text; };
  check(file.put<Section::images>(images));
  check(file.put<Section::functions>(functions));
  check(file.put<Section::params>(params));
  check(file.put<Section::function_attributes>(function_attributes));
  check(file.put<Section::graphs>(graphs));
  check(file.put<Section::nodes>(nodes));
  check(file.put<Section::kernels>(kernels));
  check(file.put<Section::launch_attributes>(launch_attributes));
  check(file.put<Section::arguments>(arguments));
  check(file.put<Section::memcpys>(memcpys));
  check(file.put<Section::memsets>(memsets));
  check(file.put<Section::graph_events>(events));
  check(file.put<Section::edges>(edges));
  check(file.put<Section::module_globals>(module_globals));
  check(file.put<Section::global_content>(global_content));
  check(file.put<Section::pointers>(pointers));
  check(file.put<Section::host_ranges>(host_ranges));
  return must(file.finish());
}

MemoryContent::MemoryContent() {
  constexpr uint64_t kMiB = 1 << 20;
  zones = {
      {strings.add("weights"), 1, 2 << 20, 0x100000000000, 64 * kMiB, 0x100000000000 + 8 * kMiB},
      {strings.add("graphs"), 3, 2 << 20, 0x140000000000, 64 * kMiB, 0x140000000000 + 8 * kMiB},
  };
  allocations = {
      {0x100000000000, 2 * kMiB, 1, 0, 0}, {0x100000200000, 100, 2, 0, 0}, {0x140000000000, 4 * kMiB, 3, 1, 0}};
  mapped = {{0x140000000000, 2 * kMiB, 1, 0}, {0x140000200000, 2 * kMiB, 1, 0}};
  for (int i = 0; i < 4096; ++i) content.push_back(static_cast<std::byte>(i * 7 + i / 256));
  content_blocks = {
      {0x140000000000, 4096, 0, 4096, static_cast<uint32_t>(Encoding::raw), 0},
      {0x1400001ff800, 4096, 0, 4096, static_cast<uint32_t>(Encoding::raw), 0},  // over the border of two mapped ranges
  };
  storages = {{0x100000000000, 4096}, {0x140000000000, 1024}};
  dims = {4, 8, 16, 1, 3, 2};
  tensors = {
      {strings.add("model.weight"), strings.add("torch.bfloat16"), 0x100000000000, 4096, 0, 0, 2, kConstant, kNone, 2},
      {strings.add("x"), strings.add("torch.int64"), 0x100000000100, 40, 0, 4, 1, kMutable, kNone, 8},
      {{}, strings.add("torch.float32"), 0x140000000004, 4, 1, 0, 0, kOutput, kNone, 4},
      {strings.add("hidden"), strings.add("torch.bfloat16"), 0x100000000000, 8, 0, 5, 0, kExport | kOutput, 0, 2},
  };
}

WrittenFile MemoryContent::write(int directory, const std::string& name) const {
  FileWriter file = must(FileWriter::create(directory, name, FileKind::memory));
  file.strings() = strings;
  auto check = [](const Status& status) { ASSERT_TRUE(status.ok()) << status.error().text; };
  check(file.put<Section::zones>(zones));
  check(file.put<Section::allocations>(allocations));
  check(file.put<Section::mapped>(mapped));
  check(file.put<Section::content_blocks>(content_blocks));
  check(file.put<Section::content>(content));
  check(file.put<Section::storages>(storages));
  check(file.put<Section::tensors>(tensors));
  check(file.put<Section::dims>(dims));
  return must(file.finish());
}

JournalContent::JournalContent() {
  zones = {{strings.add("weights"), 1, 2 << 20, 0x100000000000, 1 << 26, 0x100000200000}};
  journal = {{1, 0x100000000000, 512, 0, 1, 0, 77, 1, strings.add("cuMemAlloc_v2")},
             {2, 0x7f0000000000, 512, 0, 5, kNone, 77, 2, strings.add("cuMemHostAlloc")},
             {3, 0x7f0000000000, 512, 0, 6, kNone, 77, 0, strings.add("cuMemFreeHost")}};
  stacks = {{0, 2, 0, 0}, {1, 1, 0, 1}};
  frames = {{0x1234, 0, 0}, {0, kNone, 0}};
  modules = {{strings.add("libengine.so"), strings.add("00ff")}};
  python_frames = {{strings.add("load_weights"), strings.add("engine.py"), 12, 0}};
}

WrittenFile JournalContent::write(int directory, const std::string& name) const {
  FileWriter file = must(FileWriter::create(directory, name, FileKind::journal));
  file.strings() = strings;
  EXPECT_TRUE(file.put<Section::journal_zones>(zones).ok());
  EXPECT_TRUE(file.put<Section::journal>(journal).ok());
  EXPECT_TRUE(file.put<Section::journal_stacks>(stacks).ok());
  EXPECT_TRUE(file.put<Section::journal_frames>(frames).ok());
  EXPECT_TRUE(file.put<Section::journal_modules>(modules).ok());
  EXPECT_TRUE(file.put<Section::journal_python_frames>(python_frames).ok());
  return must(file.finish());
}

GoldenContent::GoldenContent() {
  runs = {{strings.add("decode/1"), 0, 0, 2, 4, 7, 8}, {strings.add("decode/2"), 1, 2, 2, 4, 0, 0}};
  outputs = {{{}, 4, 0, 0, 2, static_cast<uint32_t>(Comparison::bitwise)},
             {{}, 4, std::bit_cast<uint64_t>(0.5), 0, 2, static_cast<uint32_t>(Comparison::spread)},
             {{}, 4, 0, 0, 2, static_cast<uint32_t>(Comparison::none)},
             {{}, 4, 0, 4, 2, static_cast<uint32_t>(Comparison::spread)}};
  values.resize(8);
  inputs = {{0x100000000100, 16, kNone, 0}, {0x100000000110, 24, 0x3c, 0}};
  content.resize(8, std::byte{5});
  blocks = {{0x100000000108, 8, 0, 8, static_cast<uint32_t>(Encoding::raw), 0}};
  run_inputs = {{0x100000000100, 8, 0, 0, 0}, {0x100000000108, 8, 4, 0, 0}, {0x100000000100, 8, 0, 1, 0}};
  run_content.resize(12);
}

WrittenFile GoldenContent::write(int directory, const std::string& name) const {
  FileWriter file = must(FileWriter::create(directory, name, FileKind::golden));
  file.strings() = strings;
  EXPECT_TRUE(file.put<Section::golden_runs>(runs).ok());
  EXPECT_TRUE(file.put<Section::golden_outputs>(outputs).ok());
  EXPECT_TRUE(file.put<Section::golden_values>(values).ok());
  EXPECT_TRUE(file.put<Section::golden_inputs>(inputs).ok());
  EXPECT_TRUE(file.put<Section::golden_blocks>(blocks).ok());
  EXPECT_TRUE(file.put<Section::golden_content>(content).ok());
  EXPECT_TRUE(file.put<Section::golden_run_inputs>(run_inputs).ok());
  EXPECT_TRUE(file.put<Section::golden_run_content>(run_content).ok());
  return must(file.finish());
}

void seal(std::vector<std::byte>& file) {
  FileHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  const uint64_t directory_bytes = uint64_t{header.section_count} * sizeof(SectionEntry);
  if (header.directory_offset <= file.size() && directory_bytes <= file.size() - header.directory_offset) {
    header.directory_hash = hash(std::span(file).subspan(header.directory_offset, directory_bytes));
  }
  header.header_hash = hash(std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, header_hash)));
  std::memcpy(file.data(), &header, sizeof header);
}

}  // namespace foundry::archive::test
