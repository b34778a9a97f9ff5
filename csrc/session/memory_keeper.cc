#include "csrc/session/memory_keeper.h"

#include <algorithm>

#include "csrc/session/elements.h"

namespace foundry::session {

std::vector<MemoryPart> mutable_memory(std::span<const TensorInfo> tensors) {
  std::vector<MemoryPart> parts;
  for (const TensorInfo& tensor : tensors) {
    if ((tensor.flags & archive::kMutable) == 0 || tensor.bytes == 0) continue;
    parts.push_back({tensor.address, tensor.bytes, is_floating(tensor.dtype)});
  }
  std::sort(parts.begin(), parts.end(), [](const MemoryPart& a, const MemoryPart& b) { return a.address < b.address; });
  std::vector<MemoryPart> merged;
  for (const MemoryPart& part : parts) {
    if (merged.empty() || part.address >= merged.back().address + merged.back().bytes) {
      merged.push_back(part);
      continue;
    }
    MemoryPart& last = merged.back();
    last.bytes = std::max(last.address + last.bytes, part.address + part.bytes) - last.address;
    last.floating = last.floating && part.floating;
  }
  return merged;
}

Result<std::vector<MemoryPart>> MemoryKeeper::keep(std::vector<MemoryPart> parts, uint64_t most) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const MemoryPart& a, const MemoryPart& b) { return a.bytes < b.bytes; });
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(*driver_));
  std::vector<MemoryPart> too_much;
  for (const MemoryPart& part : parts) {
    if (part.bytes > most - std::min(most, bytes_)) {
      too_much.push_back(part);
      continue;
    }
    Piece piece{part, {}};
    piece.bytes.reserve(part.bytes);
    FOUNDRY_TRY(device.read(part.address, part.bytes, [&](uint64_t, std::span<const std::byte> bytes) {
      piece.bytes.insert(piece.bytes.end(), bytes.begin(), bytes.end());
      return success();
    }));
    bytes_ += part.bytes;
    pieces_.push_back(std::move(piece));
  }
  return too_much;
}

Status MemoryKeeper::restore() const {
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(*driver_));
  return restore(device);
}

Status MemoryKeeper::restore(DeviceMemory& device) const {
  for (const Piece& piece : pieces_) FOUNDRY_TRY(device.write(piece.part.address, piece.bytes));
  return device.wait();
}

Result<archive::Hash128> MemoryKeeper::fingerprint() const {
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(*driver_));
  archive::Hasher hasher;
  for (const Piece& piece : pieces_) {
    FOUNDRY_TRY(device.read(piece.part.address, piece.part.bytes, [&](uint64_t, std::span<const std::byte> bytes) {
      hasher.add(bytes);
      return success();
    }));
  }
  return hasher.digest();
}

}  // namespace foundry::session
