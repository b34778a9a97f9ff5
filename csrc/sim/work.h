// What a stream or a graph node can do. The same value is queued in a stream, captured into a node and run by a graph.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "csrc/sim/cuda_api.h"

namespace foundry::sim {

struct Context;
struct Event;
struct Function;
struct Graph;
struct Stream;

// A deep copy of the arguments of a launch, in the form they came in.
class KernelArguments {
 public:
  KernelArguments() = default;
  KernelArguments(const KernelArguments& other) { *this = other; }
  KernelArguments& operator=(const KernelArguments& other);

  CUresult take(const Function& function, void** params, void** extra);
  // What node parameters show: exactly one of them is set, and neither for a kernel without parameters.
  void** params() { return from_extra_ || pointers_.empty() ? nullptr : pointers_.data(); }
  void** extra() { return from_extra_ ? extra_ : nullptr; }
  void** call_arguments() { return pointers_.data(); }

 private:
  void point();

  std::vector<std::uint64_t> storage_;  // aligned for every parameter type
  std::vector<std::uint32_t> offsets_;
  std::vector<void*> pointers_;
  bool from_extra_ = false;
  std::size_t bytes_ = 0;
  void* extra_[5] = {};
};

using LaunchAttributes = std::map<CUlaunchAttributeID, CUlaunchAttributeValue>;
CUlaunchAttributeValue default_attribute(CUlaunchAttributeID id);

struct EmptyWork {};
struct KernelWork {
  std::shared_ptr<Function> function;
  CUcontext context = nullptr;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared_bytes = 0;
  KernelArguments arguments;
  LaunchAttributes attributes;  // those that were given; the others have their defaults
  bool programmatic = false;    // launched with programmatic stream serialization: captured into the edges
};
struct CopyWork {
  CUDA_MEMCPY3D params = {};
  CUcontext context = nullptr;
  std::shared_ptr<std::vector<char>> staged;  // pageable source, read when the call was made
};
struct SetWork {
  CUDA_MEMSET_NODE_PARAMS params = {};
  CUcontext context = nullptr;
};
struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
};
struct EventRecordWork {
  std::shared_ptr<Event> event;
};
struct EventWaitWork {
  std::shared_ptr<Event> event;
};
struct ChildWork {
  std::shared_ptr<Graph> graph;
};
struct AllocWork {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  std::vector<CUmemAccessDesc> access;
};
struct FreeWork {
  CUdeviceptr address = 0;
};
// A type that can be made and looked at but not run.
struct OpaqueWork {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraphNodeParams params = {};
  std::vector<std::vector<char>> arrays;  // what params points to
};

using Work = std::variant<EmptyWork, KernelWork, CopyWork, SetWork, HostWork, EventRecordWork, EventWaitWork, ChildWork,
                          AllocWork, FreeWork, OpaqueWork>;

// Captures the work or queues it.
CUresult submit(Stream& stream, Work work);

// Runs on a worker without the driver's lock. Not for events and children, which a graph resolves at launch.
void run(Work& work, Context& context);

CUgraphNodeType node_type(const Work& work);

CUresult run_copy(const CopyWork& copy);  // copy.cc
CUresult run_set(const SetWork& set);     // memset.cc
void run_kernel(KernelWork& kernel, Context& context);
void run_host(const HostWork& host);

}  // namespace foundry::sim
