// CPU versions of the device kernels: what tests compare them with, and what runs where there is no device code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/device/block_hash.h"
#include "csrc/device/pointer_scan.h"

namespace foundry::device {

// One summary for each started 64 KiB block.
std::vector<BlockSummary> block_summaries(std::span<const std::byte> data);

// The words of `data`, which lies at `address` on the device, that point into a window, by ascending address. Words are
// aligned on the device: where `address` is not, the first bytes are passed over.
std::vector<PointerHit> pointer_scan(std::span<const std::byte> data, uint64_t address,
                                     std::span<const AddressRange> windows);

}  // namespace foundry::device
