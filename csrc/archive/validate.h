// Checks what the records of a file say, before anyone uses them: every index, range and string reference.
#pragma once

#include "csrc/archive/reader.h"
#include "csrc/base/result.h"

namespace foundry::archive {

// After success every index, range and StringRef of the file can be followed without checks, graphs are acyclic, no
// child graph contains itself, sums of sizes do not overflow, and addresses lie where Foundry places zones.
// An error is of kind `corrupt` and names file, section, record and field.
Status validate(const File& file);

// What only both files of a rank together can show: indices and generator words of graphs point into memory that the
// archive knows.
Status validate_pair(const File& graphs, const File& memory);

// Same for golden runs: their graphs and outputs exist, and their inputs are memory of mutable tensors.
Status validate_golden_with(const File& golden, const File& graphs, const File& memory);

// Bounds that validation enforces beside the table's limits.
inline constexpr uint64_t kLowestZoneAddress = 1ull << 32;
inline constexpr uint64_t kHighestZoneAddress = 1ull << 47;  // user addresses of x86-64
inline constexpr uint64_t kHighestAddress = 1ull << 56;      // of any range; GPUs have addresses beyond the host's
inline constexpr uint32_t kMostArgumentBytes = 1u << 16;     // a kernel takes at most 32764 bytes (CUDA 12.1 and later)
inline constexpr uint32_t kMostBlockThreads = 1024;
inline constexpr uint32_t kMostAttributes = 256;  // ids are below, and so is their number on one node
inline constexpr uint32_t kDeepestChildGraph = 32;
inline constexpr uint64_t kMostExpandedNodes = 1ull << 26;  // of one graph, child graphs included
inline constexpr uint64_t kGeneratorWordBytes = 8;          // seed and offset of a generator
inline constexpr uint32_t kMostDims = 64;
inline constexpr uint32_t kMostItemBytes = 64;
inline constexpr uint32_t kMostStackFrames = 256;  // of one stack, native and Python frames each
inline constexpr uint32_t kMostBuildIdBytes = 64;  // hexadecimal

// Numbers of other interfaces that records hold. This folder includes neither; a test compares them with
// CUgraphNodeType and CUgraphDependencyType of cuda.h and with csrc/abi/foundry_abi.h.
enum NodeType : uint32_t {
  kNodeKernel = 0,
  kNodeMemcpy = 1,
  kNodeMemset = 2,
  kNodeGraph = 4,
  kNodeEmpty = 5,
  kNodeWaitEvent = 6,
  kNodeEventRecord = 7,
};
inline constexpr uint8_t kLastEdgeType = 1;
inline constexpr uint32_t kLastZoneKind = 4;
inline constexpr uint32_t kLastImageFormat = 3;

}  // namespace foundry::archive
