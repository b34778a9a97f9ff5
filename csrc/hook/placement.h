// Device memory of the application in zones: placing allocations and freeing what lies there.
#pragma once

#include "csrc/hook/cuda_api.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "csrc/hook/interposed.h"

namespace foundry::hook {

// Whether there is, or may soon be, a zone for plain allocations.
bool may_place() noexcept;

struct Placement {
  std::optional<CUresult> result;  // none: the driver shall allocate
  std::string reason;              // why not in the zone, where there is one
};

// Serves a plain allocation of the current device from its ambient zone. Out of memory is an answer.
Placement place(const Row& row, CUdeviceptr* out, size_t bytes, uint64_t stream) noexcept;
// The driver allocated although there is a zone: graphs that use it cannot be saved.
void misplaced(const Row& row, size_t bytes, const std::string& reason) noexcept;

// place(), else `allocate()`, which calls the driver and journals.
template <class Allocate>
CUresult place_or(const Row& row, CUdeviceptr* out, size_t bytes, uint64_t stream, Allocate&& allocate) {
  const Placement placement = place(row, out, bytes, stream);
  if (placement.result) return *placement.result;
  const CUresult result = allocate();
  if (result == CUDA_SUCCESS && !placement.reason.empty()) misplaced(row, bytes, placement.reason);
  return result;
}

// Serves memory that a capture allocates from the zone of graph-private memory, for the process's life: a node of the
// graph would get an address of the driver's choosing, in every process another one. False: let the driver make a node.
bool place_in_graph(const Row& row, CUdeviceptr* out, size_t bytes, uint64_t stream) noexcept;

// Frees an address that lies in a zone; nullopt: it lies in none. What place_in_graph gave out stays: the graph has it
// again at its next replay.
std::optional<CUresult> free_in_zone(const Row& row, CUdeviceptr address, uint64_t stream) noexcept;

}  // namespace foundry::hook
