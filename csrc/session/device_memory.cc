#include "csrc/session/device_memory.h"

#include <algorithm>
#include <utility>

namespace foundry::session {

Result<DeviceMemory> DeviceMemory::create(const driver::Driver& driver) {
  DeviceMemory memory(driver);
  FOUNDRY_CU(driver, cuStreamCreate, &memory.stream_, CU_STREAM_NON_BLOCKING);
  for (Buffer& buffer : memory.buffers_) {
    void* data = nullptr;
    FOUNDRY_CU(driver, cuMemHostAlloc, &data, kBufferBytes, 0);
    buffer.data = static_cast<std::byte*>(data);
    FOUNDRY_CU(driver, cuEventCreate, &buffer.free, CU_EVENT_DISABLE_TIMING);
  }
  return memory;
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

Result<std::span<std::byte>> DeviceMemory::next_buffer() {
  current_ = next_;
  next_ = (next_ + 1) % kBuffers;
  FOUNDRY_CU(*driver_, cuEventSynchronize, buffers_[current_].free);
  return std::span<std::byte>(buffers_[current_].data, kBufferBytes);
}

Status DeviceMemory::write_from_buffer(uint64_t address, size_t offset, size_t bytes) {
  Buffer& buffer = buffers_[current_];
  FOUNDRY_CU(*driver_, cuMemcpyHtoDAsync, address, buffer.data + offset, bytes, stream_);
  FOUNDRY_CU(*driver_, cuEventRecord, buffer.free, stream_);
  return success();
}

Status DeviceMemory::fill_zero(uint64_t address, uint64_t bytes) {
  FOUNDRY_CU(*driver_, cuMemsetD8Async, address, 0, bytes, stream_);
  return success();
}

Status DeviceMemory::wait() {
  FOUNDRY_CU(*driver_, cuStreamSynchronize, stream_);
  return success();
}

}  // namespace foundry::session
