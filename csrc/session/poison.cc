#include "csrc/session/poison.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/session/device_memory.h"

namespace foundry::session {

Result<std::unique_ptr<Poison>> Poison::create(Process& process, const MemoryState& memory,
                                               const std::vector<uint32_t>& ranges) {
  std::unique_ptr<Poison> poison(new Poison(process));
  std::vector<MemoryPart> parts;
  uint64_t bytes = 0;
  for (const uint32_t index : ranges) {
    const foundry_range& range = memory.map.ranges()[index];
    bytes += layout::extent(range);
    if (bytes > kMostPoisonBytes) {
      return Error{ErrorKind::unsupported, 0,
                   format("it points to more than %s of freed memory", bytes_text(kMostPoisonBytes).c_str())};
    }
    if (range.state == FOUNDRY_RANGE_RELEASED) {
      FOUNDRY_TRY(poison->map_released(range, memory.zone_of(range).granularity));
    }
    parts.push_back({range.address, layout::extent(range), false});
  }
  FOUNDRY_ASSIGN(const auto too_much, poison->kept_.keep(std::move(parts)));
  if (!too_much.empty()) return Error{ErrorKind::out_of_memory, 0, "its freed memory does not fit into the host's"};
  return poison;
}

Poison::~Poison() {
  const Status ended = end();
  (void)ended;  // who wants to know calls end()
}

Status Poison::map_released(const foundry_range& range, uint64_t page) {
  const uint64_t begin = range.address / page * page;
  const uint64_t end = (range.address + layout::extent(range) + page - 1) / page * page;
  const Status mapped =
      abi_call([&](foundry_error* error) { return process_.abi().zone_map(range.slot, begin, end - begin, error); });
  if (mapped.ok()) {
    mapped_.push_back(begin);
    return success();
  }
  // `invalid`: mapped already, for another range of the same pages.
  if (mapped.error().kind == ErrorKind::invalid) return success();
  return mapped.error();
}

std::vector<std::byte> Poison::patterned(const MemoryKeeper::Piece& piece, uint32_t pattern) const {
  if (pattern > 0) return std::vector<std::byte>(piece.bytes.size(), pattern == 1 ? std::byte{0xa5} : std::byte{0x5a});
  std::vector<std::byte> bytes = piece.bytes;
  // An address moves by 8 bytes, a number a little.
  for (size_t at = (8 - piece.part.address % 8) % 8; at < bytes.size(); at += 8) bytes[at] ^= std::byte{8};
  return bytes;
}

Status Poison::fill(uint32_t pattern) {
  pattern_ = pattern;
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(process_.driver()));
  for (const MemoryKeeper::Piece& piece : kept_.pieces()) {
    FOUNDRY_TRY(device.write(piece.part.address, patterned(piece, pattern)));
  }
  return device.wait();
}

Result<bool> Poison::untouched() const {
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(process_.driver()));
  bool equal = true;
  for (const MemoryKeeper::Piece& piece : kept_.pieces()) {
    const std::vector<std::byte> expected = patterned(piece, pattern_);
    FOUNDRY_TRY(
        device.read(piece.part.address, piece.part.bytes, [&](uint64_t address, std::span<const std::byte> bytes) {
          const auto from = expected.begin() + static_cast<ptrdiff_t>(address - piece.part.address);
          equal = equal && std::equal(bytes.begin(), bytes.end(), from);
          return success();
        }));
  }
  return equal;
}

Status Poison::end() {
  if (ended_) return success();
  ended_ = true;
  Status first = kept_.restore();
  for (const uint64_t address : std::exchange(mapped_, {})) {
    Status unmapped = abi_call([&](foundry_error* error) { return process_.abi().zone_unmap(address, error); });
    if (first.ok() && !unmapped.ok()) first = std::move(unmapped);
  }
  return first;
}

}  // namespace foundry::session
