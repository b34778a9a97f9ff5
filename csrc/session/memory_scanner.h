// Looks at device memory where it lies: blocks of zeros, words that are addresses.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/result.h"
#include "csrc/device/block_hash.h"
#include "csrc/device/pointer_scan.h"
#include "csrc/driver/driver.h"
#include "csrc/session/device_memory.h"

namespace foundry::session {

// Fatbins with kernels; empty: there are none. Must stay where they are.
struct DeviceCode {
  std::span<const std::byte> block_summary, pointer_scan;

  // What the owner of the zones carries: the hook its build's, _core none.
  static DeviceCode of(const foundry_abi& abi);
};

// With kernels on the device; where there is no code for it, by the same functions on the host, to where everything is
// copied then. Results are equal. A context of the device must be current in every call. Not thread-safe.
class MemoryScanner {
 public:
  static Result<std::unique_ptr<MemoryScanner>> create(const driver::Driver& driver, const DeviceCode& code);
  ~MemoryScanner();
  MemoryScanner(const MemoryScanner&) = delete;
  MemoryScanner& operator=(const MemoryScanner&) = delete;

  bool on_device() const { return pointer_scan_ != nullptr; }
  // Why not, if that is no matter of the device's kind; else empty.
  const std::string& note() const { return note_; }

  // One for each started 64 KiB of [address, address + bytes). `invalid` unless the address is a multiple of 16.
  Result<std::vector<device::BlockSummary>> summaries(uint64_t address, uint64_t bytes);
  // The 8-byte aligned words of [address, address + bytes) that point into a window, by ascending address. At most
  // kMostWindows windows.
  Result<std::vector<device::PointerHit>> pointers(uint64_t address, uint64_t bytes,
                                                   std::span<const device::AddressRange> windows);

  static constexpr size_t kMostWindows = 64;
  // Below this the host is as fast.
  static constexpr uint64_t kLeastBytes = 256 << 10;

 private:
  MemoryScanner(const driver::Driver& driver, DeviceMemory memory) : driver_(driver), memory_(std::move(memory)) {}
  Status set_up(const DeviceCode& code);
  Status load(std::span<const std::byte> fatbin, const char* kernel, CUfunction& function);
  Status launch(CUfunction function, unsigned int blocks, void** arguments);
  Status scan(uint64_t address, uint64_t bytes, std::span<const device::AddressRange> windows, uint64_t& found);

  const driver::Driver& driver_;
  DeviceMemory memory_;
  std::string note_;
  std::vector<CUlibrary> libraries_;
  CUfunction block_summary_ = nullptr, pointer_scan_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr scratch_ = 0;
};

}  // namespace foundry::session
