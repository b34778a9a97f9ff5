#include "csrc/session/device_memory.h"

#include <algorithm>
#include <utility>

#include "csrc/archive/content.h"
#include "csrc/base/text.h"

namespace foundry::session {

Result<DeviceMemory> DeviceMemory::create(const driver::Driver& driver) {
  DeviceMemory memory(driver);
  FOUNDRY_CU(driver, cuStreamCreate, &memory.stream_, CU_STREAM_NON_BLOCKING);
  return memory;
}

Status DeviceMemory::need(Buffer& buffer) {
  if (buffer.data != nullptr) return success();
  if (buffer.free == nullptr) FOUNDRY_CU(*driver_, cuEventCreate, &buffer.free, CU_EVENT_DISABLE_TIMING);
  void* data = nullptr;
  FOUNDRY_CU(*driver_, cuMemHostAlloc, &data, kBufferBytes, 0);
  buffer.data = static_cast<std::byte*>(data);
  return success();
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : driver_(other.driver_),
      stream_(std::exchange(other.stream_, nullptr)),
      buffers_(std::exchange(other.buffers_, {})),
      next_(other.next_),
      current_(other.current_) {}

DeviceMemory::~DeviceMemory() {
  if (stream_ != nullptr) {
    driver_->cuStreamSynchronize(stream_);
    driver_->cuStreamDestroy(stream_);
  }
  for (Buffer& buffer : buffers_) {
    if (buffer.free != nullptr) driver_->cuEventDestroy(buffer.free);
    if (buffer.data != nullptr) driver_->cuMemFreeHost(buffer.data);
  }
}

Status DeviceMemory::read(uint64_t address, uint64_t bytes,
                          const std::function<Status(uint64_t, std::span<const std::byte>)>& consume) {
  // One copy ahead of the consumer.
  struct Piece {
    uint64_t address = 0;
    size_t bytes = 0;
    Buffer* buffer = nullptr;
  };
  const uint64_t end = address + bytes;
  Piece pending;
  size_t slot = 0;
  while (address < end || pending.buffer != nullptr) {
    Piece fresh;
    if (address < end) {
      fresh = {address, static_cast<size_t>(std::min<uint64_t>(kBufferBytes, end - address)), &buffers_[slot]};
      slot = (slot + 1) % 2;
      FOUNDRY_TRY(need(*fresh.buffer));
      FOUNDRY_CU(*driver_, cuMemcpyDtoHAsync, fresh.buffer->data, fresh.address, fresh.bytes, stream_);
      FOUNDRY_CU(*driver_, cuEventRecord, fresh.buffer->free, stream_);
      address += fresh.bytes;
    }
    if (pending.buffer != nullptr) {
      FOUNDRY_CU(*driver_, cuEventSynchronize, pending.buffer->free);
      FOUNDRY_TRY(consume(pending.address, {pending.buffer->data, pending.bytes}));
    }
    pending = fresh;
  }
  return success();
}

Status DeviceMemory::gather(std::span<const Extent> extents,
                            const std::function<Status(size_t, std::span<const std::byte>)>& consume) {
  size_t first = 0;
  while (first < extents.size()) {
    FOUNDRY_ASSIGN(const std::span<std::byte> buffer, next_buffer());
    size_t end = first;
    size_t used = 0;
    for (; end < extents.size() && extents[end].bytes <= buffer.size() - used; ++end) {
      FOUNDRY_CU(*driver_, cuMemcpyDtoHAsync, buffer.data() + used, extents[end].address, extents[end].bytes, stream_);
      used += extents[end].bytes;
    }
    if (end == first) return Error{ErrorKind::invalid, 0, format("extent %zu is larger than a buffer", first)};
    FOUNDRY_TRY(wait());
    size_t offset = 0;
    for (; first < end; ++first) {
      FOUNDRY_TRY(consume(first, buffer.subspan(offset, extents[first].bytes)));
      offset += extents[first].bytes;
    }
  }
  return success();
}

Result<std::span<std::byte>> DeviceMemory::next_buffer() {
  current_ = next_;
  next_ = (next_ + 1) % kBuffers;
  FOUNDRY_TRY(need(buffers_[current_]));
  FOUNDRY_CU(*driver_, cuEventSynchronize, buffers_[current_].free);
  return std::span<std::byte>(buffers_[current_].data, kBufferBytes);
}

Status DeviceMemory::write_from_buffer(uint64_t address, size_t offset, size_t bytes) {
  Buffer& buffer = buffers_[current_];
  FOUNDRY_CU(*driver_, cuMemcpyHtoDAsync, address, buffer.data + offset, bytes, stream_);
  FOUNDRY_CU(*driver_, cuEventRecord, buffer.free, stream_);
  return success();
}

Status DeviceMemory::write(uint64_t address, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    FOUNDRY_ASSIGN(const std::span<std::byte> buffer, next_buffer());
    const size_t take = std::min(buffer.size(), bytes.size());
    std::copy_n(bytes.begin(), take, buffer.begin());
    FOUNDRY_TRY(write_from_buffer(address, 0, take));
    address += take;
    bytes = bytes.subspan(take);
  }
  return success();
}

Status DeviceMemory::fill(uint64_t address, uint64_t bytes, uint8_t value) {
  FOUNDRY_CU(*driver_, cuMemsetD8Async, address, value, bytes, stream_);
  return success();
}

Status DeviceMemory::wait() {
  FOUNDRY_CU(*driver_, cuStreamSynchronize, stream_);
  return success();
}

Status write_content(DeviceMemory& device, std::span<const archive::ContentRecord> records,
                     std::span<const std::byte> content, uint64_t& bytes) {
  static_assert(DeviceMemory::kBufferBytes >= archive::kContentUnitBytes);
  FOUNDRY_ASSIGN(const auto units, archive::content_units(records, content));
  for (const archive::ContentUnit& unit : units) {
    FOUNDRY_ASSIGN(const std::span<std::byte> buffer, device.next_buffer());
    FOUNDRY_TRY(archive::decode_unit(unit, content, buffer));
    for (const archive::ContentUnit::Piece& piece : unit.pieces) {
      FOUNDRY_TRY(device.write_from_buffer(piece.address, piece.offset, piece.bytes));
      bytes += piece.bytes;
    }
  }
  return success();
}

}  // namespace foundry::session
