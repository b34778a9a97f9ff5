// Containers of code images: fatbin wrapper, fatbin and bare ELF, read from memory of unknown size without faulting.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace foundry::sim {

// Format constants, as nvcc and fatbinary write them.
constexpr std::uint32_t kWrapperMagic = 0x466243b1;
constexpr std::uint32_t kFatbinMagic = 0xba55ed50;
constexpr std::uint16_t kEntryPtx = 1;
constexpr std::uint16_t kEntryElf = 2;
constexpr std::uint64_t kEntryCompressed = 0x2000 | 0x8000;  // LZ4, zstd
constexpr std::size_t kEntryHeaderBytes = 64;                // the part with fixed fields
constexpr std::size_t kFatbinHeaderBytes = 16;

struct ImageFailure {
  CUresult code;
  std::string text;
};

// The code chosen for a device.
struct ImagePayload {
  std::vector<std::byte> bytes;
  int arch = 0;  // of the fatbin entry; 0 for a bare ELF, which does not say
  bool from_ptx = false;
};

// Whether code for `arch` (10 * major + minor) runs on a device: machine code within its major version, PTX on every
// later device.
bool runs_on(int arch, bool ptx, int cc_major, int cc_minor);

// Copies the code for the device out of the container at `data`. `available` bytes are readable, 0 when not known.
std::variant<ImagePayload, ImageFailure> select_payload(const void* data, std::size_t available, int cc_major,
                                                        int cc_minor);

}  // namespace foundry::sim
