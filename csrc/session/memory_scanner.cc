#include "csrc/session/memory_scanner.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/device/reference.h"

namespace foundry::session {
namespace {

using device::AddressRange;
using device::BlockSummary;
using device::PointerHit;

constexpr unsigned int kThreads = 256;
constexpr unsigned int kMostBlocks = 2048;

constexpr uint64_t kMostSummaries = 1 << 15;
constexpr uint64_t kMostHits = 1 << 15;

// What the kernels write to and read from, in device memory.
struct Scratch {
  uint64_t found;
  AddressRange range;
  AddressRange windows[MemoryScanner::kMostWindows];
  union {
    BlockSummary summaries[kMostSummaries];
    PointerHit hits[kMostHits];
  };
};

// The driver has no use for the code on this device: a simulated one, or one of another kind.
bool is_of_another_kind(int code) {
  return code == CUDA_ERROR_NO_BINARY_FOR_GPU || code == CUDA_ERROR_INVALID_IMAGE || code == CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

DeviceCode DeviceCode::of(const foundry_abi& abi) {
  const auto code = [&](uint32_t which) -> std::span<const std::byte> {
    const void* data = nullptr;
    const size_t bytes = abi.device_code(which, &data);
    return {static_cast<const std::byte*>(data), bytes};
  };
  return {code(FOUNDRY_CODE_BLOCK_SUMMARY), code(FOUNDRY_CODE_POINTER_SCAN)};
}

Result<std::unique_ptr<MemoryScanner>> MemoryScanner::create(const driver::Driver& driver, const DeviceCode& code) {
  FOUNDRY_ASSIGN(DeviceMemory memory, DeviceMemory::create(driver));
  std::unique_ptr<MemoryScanner> scanner(new MemoryScanner(driver, std::move(memory)));
  if (code.block_summary.empty() || code.pointer_scan.empty()) return scanner;
  const Status ready = scanner->set_up(code);
  if (!ready.ok()) {
    scanner->block_summary_ = scanner->pointer_scan_ = nullptr;
    if (!is_of_another_kind(ready.error().code)) {
      scanner->note_ = "memory is looked at on the host, which takes longer: " + ready.error().text;
    }
  }
  return scanner;
}

MemoryScanner::~MemoryScanner() {
  if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  if (scratch_ != 0) driver_.cuMemFree(scratch_);
  for (const CUlibrary library : libraries_) driver_.cuLibraryUnload(library);
}

Status MemoryScanner::set_up(const DeviceCode& code) {
  FOUNDRY_TRY(load(code.block_summary, "foundry_block_summary", block_summary_));
  FOUNDRY_CU(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  FOUNDRY_CU(driver_, cuMemAlloc, &scratch_, sizeof(Scratch));
  return load(code.pointer_scan, "foundry_pointer_scan", pointer_scan_);
}

Status MemoryScanner::load(std::span<const std::byte> fatbin, const char* kernel, CUfunction& function) {
  CUlibrary library = nullptr;
  FOUNDRY_CU(driver_, cuLibraryLoadData, &library, fatbin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  libraries_.push_back(library);
  CUkernel found = nullptr;
  FOUNDRY_CU(driver_, cuLibraryGetKernel, &found, library, kernel);
  FOUNDRY_CU(driver_, cuKernelGetFunction, &function, found);
  return success();
}

Status MemoryScanner::launch(CUfunction function, unsigned int blocks, void** arguments) {
  FOUNDRY_CU(driver_, cuLaunchKernel, function, std::clamp(blocks, 1u, kMostBlocks), 1, 1, kThreads, 1, 1, 0, stream_,
             arguments, nullptr);
  return success();
}

Result<std::vector<BlockSummary>> MemoryScanner::summaries(uint64_t address, uint64_t bytes) {
  if (address % 16 != 0) {
    return Error{ErrorKind::invalid, 0, format("blocks cannot begin at %s, no multiple of 16", hex(address).c_str())};
  }
  std::vector<BlockSummary> all;
  all.reserve((bytes + device::kBlockBytes - 1) / device::kBlockBytes);
  if (!on_device()) {
    static_assert(DeviceMemory::kBufferBytes % device::kBlockBytes == 0);
    FOUNDRY_TRY(memory_.read(address, bytes, [&](uint64_t, std::span<const std::byte> piece) {
      const std::vector<BlockSummary> some = device::block_summaries(piece);
      all.insert(all.end(), some.begin(), some.end());
      return success();
    }));
    return all;
  }
  while (bytes > 0) {
    uint64_t take = std::min(bytes, kMostSummaries * device::kBlockBytes);
    const uint64_t blocks = (take + device::kBlockBytes - 1) / device::kBlockBytes;
    CUdeviceptr out = scratch_ + offsetof(Scratch, summaries);
    void* arguments[] = {&address, &take, &out};
    FOUNDRY_TRY(launch(block_summary_, static_cast<unsigned int>(blocks), arguments));
    const size_t before = all.size();
    all.resize(before + blocks);
    FOUNDRY_CU(driver_, cuMemcpyDtoHAsync, all.data() + before, out, blocks * sizeof(BlockSummary), stream_);
    FOUNDRY_CU(driver_, cuStreamSynchronize, stream_);
    address += take;
    bytes -= take;
  }
  return all;
}

Status MemoryScanner::scan(uint64_t address, uint64_t bytes, std::span<const AddressRange> windows, uint64_t& found) {
  const AddressRange range{address, address + bytes};
  found = 0;
  FOUNDRY_CU(driver_, cuMemcpyHtoDAsync, scratch_ + offsetof(Scratch, found), &found, sizeof found, stream_);
  FOUNDRY_CU(driver_, cuMemcpyHtoDAsync, scratch_ + offsetof(Scratch, range), &range, sizeof range, stream_);
  FOUNDRY_CU(driver_, cuMemcpyHtoDAsync, scratch_ + offsetof(Scratch, windows), windows.data(), windows.size_bytes(),
             stream_);
  CUdeviceptr ranges = scratch_ + offsetof(Scratch, range);
  CUdeviceptr where = scratch_ + offsetof(Scratch, windows);
  CUdeviceptr hits = scratch_ + offsetof(Scratch, hits);
  CUdeviceptr counter = scratch_ + offsetof(Scratch, found);
  uint32_t range_count = 1;
  auto window_count = static_cast<uint32_t>(windows.size());
  uint64_t capacity = kMostHits;
  void* arguments[] = {&ranges, &range_count, &where, &window_count, &hits, &capacity, &counter};
  const uint64_t blocks = bytes / 8 / kThreads / 8 + 1;
  FOUNDRY_TRY(launch(pointer_scan_, static_cast<unsigned int>(std::min<uint64_t>(blocks, kMostBlocks)), arguments));
  FOUNDRY_CU(driver_, cuMemcpyDtoHAsync, &found, counter, sizeof found, stream_);
  FOUNDRY_CU(driver_, cuStreamSynchronize, stream_);
  return success();
}

Result<std::vector<PointerHit>> MemoryScanner::pointers(uint64_t address, uint64_t bytes,
                                                        std::span<const AddressRange> windows) {
  if (windows.size() > kMostWindows) {
    return Error{
        ErrorKind::invalid, 0,
        format("memory can be searched for addresses of %zu windows, not of %zu", kMostWindows, windows.size())};
  }
  std::vector<PointerHit> hits;
  const uint64_t begin = (address + 7) / 8 * 8;
  const uint64_t end = (address + bytes) / 8 * 8;
  if (begin >= end || windows.empty()) return hits;
  if (on_device()) {
    uint64_t found = 0;
    FOUNDRY_TRY(scan(begin, end - begin, windows, found));
    if (found <= kMostHits) {
      hits.resize(found);
      if (found > 0) {
        FOUNDRY_CU(driver_, cuMemcpyDtoHAsync, hits.data(), scratch_ + offsetof(Scratch, hits),
                   found * sizeof(PointerHit), stream_);
        FOUNDRY_CU(driver_, cuStreamSynchronize, stream_);
      }
      std::sort(hits.begin(), hits.end(),
                [](const PointerHit& a, const PointerHit& b) { return a.address < b.address; });
      return hits;
    }
    // More than there is room for: the host has enough.
  }
  static_assert(DeviceMemory::kBufferBytes % 8 == 0);
  FOUNDRY_TRY(memory_.read(begin, end - begin, [&](uint64_t at, std::span<const std::byte> piece) {
    const std::vector<PointerHit> some = device::pointer_scan(piece, at, windows);
    hits.insert(hits.end(), some.begin(), some.end());
    return success();
  }));
  return hits;
}

}  // namespace foundry::session
