// Small archives to read, damage and publish.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/archive/files.h"
#include "csrc/archive/writer.h"

namespace foundry::archive::test {

// An empty directory that is removed with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  FileDescriptor fd_;
};

std::span<const std::byte> bytes_of(std::string_view text);
std::vector<std::byte> read_file(const std::string& path);
void write_file(const std::string& path, std::span<const std::byte> bytes);

// Every section of a graphs file with at least one record: a kernel with `params` and one with `extra`, a copy, a
// memset, event nodes, an empty node and a child graph. `strings` comes first so that tests can change references.
struct GraphsContent {
  StringTable strings;
  std::vector<ImageRecord> images;
  std::vector<FunctionRecord> functions;
  std::vector<ParamRecord> params;
  std::vector<FunctionAttributeRecord> function_attributes;
  std::vector<GraphRecord> graphs;
  std::vector<NodeRecord> nodes;
  std::vector<KernelRecord> kernels;
  std::vector<LaunchAttributeRecord> launch_attributes;
  std::vector<std::byte> arguments;
  std::vector<MemcpyRecord> memcpys;
  std::vector<MemsetRecord> memsets;
  std::vector<EventRecord> events;
  std::vector<EdgeRecord> edges;
  std::vector<ModuleGlobalRecord> module_globals;
  std::vector<std::byte> global_content;
  std::vector<PointerRecord> pointers;
  std::vector<HostRangeRecord> host_ranges;

  GraphsContent();
  WrittenFile write(int directory, const std::string& name) const;
};

struct MemoryContent {
  StringTable strings;
  std::vector<ZoneRecord> zones;
  std::vector<AllocationRecord> allocations;
  std::vector<MappedRecord> mapped;
  std::vector<ContentRecord> content_blocks;
  std::vector<std::byte> content;
  std::vector<StorageRecord> storages;
  std::vector<TensorRecord> tensors;
  std::vector<int64_t> dims;

  MemoryContent();
  WrittenFile write(int directory, const std::string& name) const;
};

struct JournalContent {
  StringTable strings;
  std::vector<ZoneRecord> zones;
  std::vector<JournalRecord> journal;
  std::vector<StackRecord> stacks;
  std::vector<FrameRecord> frames;
  std::vector<ModuleRecord> modules;
  std::vector<PythonFrameRecord> python_frames;

  JournalContent();
  WrittenFile write(int directory, const std::string& name) const;
};

// Golden runs of graphs 0 and 1 and output tensor 2 of the other samples, with every comparison; inputs in tensor 1.
struct GoldenContent {
  StringTable strings;
  std::vector<GoldenRunRecord> runs;
  std::vector<GoldenOutputRecord> outputs;
  std::vector<std::byte> values;
  std::vector<GoldenInputRecord> inputs;
  std::vector<ContentRecord> blocks;
  std::vector<std::byte> content;
  std::vector<GoldenRunInputRecord> run_inputs;
  std::vector<std::byte> run_content;

  GoldenContent();
  WrittenFile write(int directory, const std::string& name) const;
};

// Value of a Result that must be one; the test fails with the error's text otherwise.
template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().text;
    throw std::runtime_error(result.error().text);
  }
  return std::move(result).value();
}

// Recomputes directory_hash and header_hash of a file's bytes, so that only the change made by hand is wrong.
void seal(std::vector<std::byte>& file);

}  // namespace foundry::archive::test
