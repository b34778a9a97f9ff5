// Checks what the records of a file say, before anyone uses them: every index, range and string reference.
#pragma once

#include "csrc/archive/reader.h"
#include "csrc/base/result.h"

namespace foundry::archive {

// After success every index, range and StringRef of the file can be followed without checks, graphs are acyclic, no
// child graph contains itself, sums of sizes do not overflow, and addresses lie where Foundry places zones.
// An error is of kind `corrupt` and names file, section, record and field.
Status validate(const File& file);

// What only both files of a rank together can show: indices from graphs into memory.
Status validate_pair(const File& graphs, const File& memory);

// Bounds that validation enforces beside the table's limits.
inline constexpr uint64_t kLowestZoneAddress = 1ull << 32;
inline constexpr uint64_t kHighestZoneAddress = 1ull << 47;  // user addresses of x86-64
inline constexpr uint32_t kMostArgumentBytes = 1u << 16;     // a kernel takes at most 32764 bytes (CUDA 12.1 and later)
inline constexpr uint32_t kMostBlockThreads = 1024;
inline constexpr uint32_t kDeepestChildGraph = 32;
inline constexpr uint64_t kMostExpandedNodes = 1ull << 26;   // of one graph, child graphs included

}  // namespace foundry::archive
