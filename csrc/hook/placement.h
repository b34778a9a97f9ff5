// Device memory of the application in zones: placing allocations and freeing what lies there.
#pragma once

#include "csrc/hook/cuda_api.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "csrc/hook/interposed.h"

namespace foundry::hook {

// Serves a plain allocation of the current device from its ambient zone. nullopt: the driver shall (no zone, no context,
// or something went wrong, which is recorded). Out of memory is an answer.
std::optional<CUresult> place(const Row& row, CUdeviceptr* out, size_t bytes, uint64_t stream) noexcept;

// Frees an address that lies in a zone; nullopt: it lies in none.
std::optional<CUresult> free_in_zone(const Row& row, CUdeviceptr address, uint64_t stream) noexcept;

}  // namespace foundry::hook
