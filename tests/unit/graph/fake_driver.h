// A graph store behind a driver table: enough of a driver to test snapshot and restore against its known traps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/driver/driver.h"

namespace foundry::graph::testing {

struct FakeParam {
  size_t offset, bytes;
};

struct FakeFunctionSpec {
  std::vector<FakeParam> params;
  std::map<int, int> attributes;  // as the compiler set them
};

// What cuLibraryLoadData makes of the bytes "name".
struct FakeImageSpec {
  std::map<std::string, FakeFunctionSpec> functions;
  std::map<std::string, std::vector<uint8_t>> globals;  // initial values
};

enum class Tag : uint32_t { library, module, kernel, function, graph, node, exec, event, stream, context };

struct FakeObject {
  explicit FakeObject(Tag t) : tag(t) {}
  Tag tag;
};

struct FakeModule : FakeObject {
  FakeModule() : FakeObject(Tag::module) {}
};

struct FakeKernel;
struct FakeFunction : FakeObject {
  FakeFunction() : FakeObject(Tag::function) {}
  FakeKernel* kernel = nullptr;
  std::map<int, int> attributes;
};

struct FakeLibrary;
struct FakeKernel : FakeObject {
  FakeKernel() : FakeObject(Tag::kernel) {}
  std::string name;
  FakeFunctionSpec spec;
  std::map<int, int> attributes;
  FakeLibrary* library = nullptr;
  FakeFunction function;
};

struct FakeLibrary : FakeObject {
  FakeLibrary() : FakeObject(Tag::library) {}
  std::string image;
  bool preserved = false;
  FakeModule module;
  std::map<std::string, std::unique_ptr<FakeKernel>> kernels;
  std::map<std::string, std::vector<uint8_t>> globals;
};

// Which handles cuGraphKernelNodeGetParams returns for a node.
enum class Shown { both, function, kernel, disguised_kernel };

struct FakeGraph;
struct FakeNode : FakeObject {
  FakeNode() : FakeObject(Tag::node) {}
  int type = 0;
  FakeKernel* kernel = nullptr;
  Shown shown = Shown::both;
  CUDA_KERNEL_NODE_PARAMS launch{};
  std::vector<std::vector<uint8_t>> arguments;  // one per parameter
  std::vector<uint8_t> extra_buffer;            // the `extra` form, if not empty
  size_t extra_bytes = 0;
  std::vector<void*> pointers;
  std::map<int, CUlaunchAttributeValue> attributes;
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS set{};
  CUevent event = nullptr;
  std::unique_ptr<FakeGraph> child;
};

struct FakeEdge {
  size_t from, to;
  CUgraphEdgeData data;
};

struct FakeGraph : FakeObject {
  FakeGraph() : FakeObject(Tag::graph) {}
  std::vector<std::unique_ptr<FakeNode>> nodes;
  std::vector<FakeEdge> edges;
  std::unique_ptr<FakeGraph> clone() const;
  size_t index_of(const FakeNode* node) const;
};

struct FakeExec : FakeObject {
  FakeExec() : FakeObject(Tag::exec) {}
  std::unique_ptr<FakeGraph> graph;
  unsigned long long flags = 0;
  std::atomic<int> launches{0};  // threads may launch one graph
};

// One at a time per process: the driver table holds plain function pointers.
class FakeDriver {
 public:
  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const driver::Driver& table() const { return table_; }
  CUcontext context() { return reinterpret_cast<CUcontext>(&context_); }

  // Test set-up
  std::map<std::string, FakeImageSpec> images;
  std::map<std::string, CUresult> failures;                   // entry point -> what it answers from now on
  std::map<int, CUresult> attribute_failures;                 // launch attribute -> what asking for it answers
  std::map<int, CUlaunchAttributeValue> new_node_attributes;  // defaults other than the table's
  std::map<std::string, CUresult> param_info_failures;        // kernel name -> what its parameter info answers
  std::map<uint64_t, unsigned> pointer_types;                 // what cuPointerGetAttributes knows
  std::function<void(const char* call)> on_call;              // seen from any thread
  bool bulk_edges_share_data = true;                          // the trap of libcuda 580 to 610

  CUgraph graph();
  // Adds a kernel node with these argument bytes, one per parameter.
  FakeNode* add_kernel(CUgraph graph, CUkernel kernel, std::vector<std::vector<uint8_t>> arguments,
                       Shown shown = Shown::both);
  FakeNode* add_node(CUgraph graph, int type);
  static void add_edge(CUgraph graph, FakeNode* from, FakeNode* to, uint8_t from_port = 0, uint8_t type = 0);
  CUlibrary load(const std::string& image);
  CUkernel kernel(CUlibrary library, const std::string& name);
  static FakeGraph& of(CUgraph graph) { return *reinterpret_cast<FakeGraph*>(graph); }
  static FakeExec& of(CUgraphExec exec) { return *reinterpret_cast<FakeExec*>(exec); }
  static FakeKernel& of(CUkernel kernel) { return *reinterpret_cast<FakeKernel*>(kernel); }
  static FakeLibrary& of(CUlibrary library) { return *reinterpret_cast<FakeLibrary*>(library); }

  // What the code under test did
  std::atomic<int> live_graphs{0}, live_execs{0}, live_libraries{0}, live_events{0}, live_streams{0};
  std::atomic<int> violations{0};  // calls without the context they need
  std::vector<std::string> log;    // order of noteworthy calls
  std::vector<std::string> calls(const std::string& prefix);
  void note(const std::string& text);

  // For the functions behind the table
  static FakeDriver& now();
  CUresult enter(const char* call, bool needs_context);

 private:
  driver::Driver table_;
  FakeObject context_{Tag::context};
  std::mutex mutex_;
};

}  // namespace foundry::graph::testing
