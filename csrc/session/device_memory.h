// Device memory through one pinned staging buffer: reading for SAVE, filling for LOAD.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "csrc/archive/records.h"
#include "csrc/base/result.h"
#include "csrc/driver/driver.h"

namespace foundry::session {

struct Extent {
  uint64_t address = 0, bytes = 0;
};

// Copies between host and device with buffers that the driver can read at full speed. Works on a stream of its own; a
// context of the device must be current. Not thread-safe.
class DeviceMemory {
 public:
  static constexpr size_t kBufferBytes = size_t{4} << 20;
  static constexpr size_t kBuffers = 4;

  static Result<DeviceMemory> create(const driver::Driver& driver);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();

  // Calls `consume(address, bytes)` for [address, address + bytes) in pieces of at most kBufferBytes, in order.
  Status read(uint64_t address, uint64_t bytes,
              const std::function<Status(uint64_t address, std::span<const std::byte> piece)>& consume);
  // Calls `consume(index, bytes)` for each of the extents, in order. Many small ones cost little more than one; none
  // may be larger than kBufferBytes.
  Status gather(std::span<const Extent> extents,
                const std::function<Status(size_t index, std::span<const std::byte> bytes)>& consume);
  // A buffer to fill; it is free once every copy out of it has ended.
  Result<std::span<std::byte>> next_buffer();
  // Copies from the buffer handed out last; returns at once.
  Status write_from_buffer(uint64_t address, size_t offset, size_t bytes);
  // Copies `bytes` through the buffers; they may change when it returns.
  Status write(uint64_t address, std::span<const std::byte> bytes);
  Status fill(uint64_t address, uint64_t bytes, uint8_t value);
  Status wait();

 private:
  struct Buffer {
    std::byte* data = nullptr;
    CUevent free = nullptr;
  };
  explicit DeviceMemory(const driver::Driver& driver) : driver_(&driver) {}
  // Makes the buffer when it is first used: pinning memory is slow, and often there is little to copy.
  Status need(Buffer& buffer);

  const driver::Driver* driver_;
  CUstream stream_ = nullptr;
  std::array<Buffer, kBuffers> buffers_;
  size_t next_ = 0;
  size_t current_ = 0;
};

// Writes stored content to the addresses that its records name; adds to `bytes` how much that was.
Status write_content(DeviceMemory& device, std::span<const archive::ContentRecord> records,
                     std::span<const std::byte> content, uint64_t& bytes);

}  // namespace foundry::session
