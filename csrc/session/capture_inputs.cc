#include "csrc/session/capture_inputs.h"

#include <algorithm>

#include "csrc/archive/records.h"
#include "csrc/base/text.h"
#include "csrc/session/elements.h"

namespace foundry::session {
namespace {

Status write(DeviceMemory& device, std::span<const CaptureInputs::Piece> pieces) {
  for (const CaptureInputs::Piece& piece : pieces) FOUNDRY_TRY(device.write(piece.address, *piece.bytes));
  return device.wait();
}

// The largest of those at one address counts.
void add(std::map<uint64_t, uint64_t>& found, uint64_t address, uint64_t bytes) {
  uint64_t& known = found[address];
  known = std::max(known, bytes);
}

std::vector<Extent> extents_of(const std::map<uint64_t, uint64_t>& found) {
  std::vector<Extent> extents;
  for (const auto& [address, bytes] : found) extents.push_back({address, bytes});
  return extents;
}

}  // namespace

bool CaptureInputs::takes(const TensorInfo& tensor) {
  return (tensor.flags & archive::kMutable) != 0 && !is_floating(tensor.dtype) && tensor.bytes != 0 &&
         tensor.bytes <= kMostCaptureInputBytes;
}

Status CaptureInputs::take(DeviceMemory& device, std::span<const TensorInfo> tensors) {
  taken_.emplace();
  std::map<uint64_t, uint64_t> found;  // address -> bytes
  for (const TensorInfo& tensor : tensors) {
    if (takes(tensor)) add(found, tensor.address, tensor.bytes);
  }
  const std::vector<Extent> extents = extents_of(found);
  std::vector<Piece> pieces;
  uint64_t fresh = 0;
  FOUNDRY_TRY(device.gather(extents, [&](size_t index, std::span<const std::byte> bytes) {
    auto& last = last_[extents[index].address];
    if (!last || !std::equal(bytes.begin(), bytes.end(), last->begin(), last->end())) {
      last = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
      fresh += bytes.size();
    }
    pieces.push_back({extents[index].address, last});
    return success();
  }));
  if (fresh > most_ - bytes_) {
    taken_.reset();
    last_.clear();
    return success();
  }
  bytes_ += fresh;
  taken_ = std::move(pieces);
  return success();
}

void CaptureInputs::keep(uint32_t graph) {
  if (taken_) {
    kept_[graph] = std::move(*taken_);
  } else {
    lacking_.insert(graph);
  }
  taken_.emplace();
}

Result<std::span<const CaptureInputs::Piece>> CaptureInputs::of(uint32_t graph) const {
  if (lacking_.contains(graph)) {
    return Error{
        ErrorKind::out_of_memory, 0,
        format("what its inputs held when it was captured was not kept: that would have taken more than %s for "
               "all graphs",
               bytes_text(most_).c_str())};
  }
  const auto found = kept_.find(graph);
  return found == kept_.end() ? std::span<const Piece>() : std::span<const Piece>(found->second);
}

void CaptureInputs::keep_within(std::span<const MemoryPart> parts) {
  const auto is_outside = [&](const Piece& piece) {
    const auto next = std::upper_bound(parts.begin(), parts.end(), piece.address,
                                       [](uint64_t address, const MemoryPart& part) { return address < part.address; });
    return next == parts.begin() ||
           piece.address + piece.bytes->size() > std::prev(next)->address + std::prev(next)->bytes;
  };
  for (auto& [graph, pieces] : kept_) std::erase_if(pieces, is_outside);
}

Status CaptureInputs::remember(DeviceMemory& device) {
  std::map<uint64_t, uint64_t> written;  // address -> bytes
  for (const auto& [graph, pieces] : kept_) {
    for (const Piece& piece : pieces) add(written, piece.address, piece.bytes->size());
  }
  const std::vector<Extent> extents = extents_of(written);
  std::vector<Piece> before;
  FOUNDRY_TRY(device.gather(extents, [&](size_t index, std::span<const std::byte> bytes) {
    before.push_back(
        {extents[index].address, std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end())});
    return success();
  }));
  before_ = std::move(before);
  return success();
}

Status CaptureInputs::put_back(DeviceMemory& device) const { return before_ ? write(device, *before_) : success(); }

Status CaptureInputs::put(DeviceMemory& device, uint32_t graph) {
  if (!before_) FOUNDRY_TRY(remember(device));
  FOUNDRY_ASSIGN(const std::span<const Piece> pieces, of(graph));
  return write(device, pieces);
}

}  // namespace foundry::session
