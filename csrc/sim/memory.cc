// The table of ranges, addresses and their backing, and copies that cannot fault.
#include "csrc/sim/memory.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "csrc/sim/lifetime.h"
#include "csrc/sim/stream.h"

namespace foundry::sim {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kArenaBytes = std::size_t{4} << 40;
constexpr std::size_t kLarge = std::size_t{1} << 20;
constexpr std::size_t kLargeAlignment = std::size_t{2} << 20;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

// FOUNDRY_SIM_POISON=BYTE fills new memory of up to 64 MiB, for tests that rely on fresh zeroes without saying so.
int poison() {
  static const int value = [] {
    const char* text = std::getenv("FOUNDRY_SIM_POISON");
    return text == nullptr || *text == 0 ? -1 : static_cast<int>(std::strtol(text, nullptr, 0) & 255);
  }();
  return value;
}

}  // namespace

std::map<std::uintptr_t, Range>& ranges() {
  static auto* table = new std::map<std::uintptr_t, Range>;
  return *table;
}

Range* find_range(std::uintptr_t address) {
  auto it = ranges().upper_bound(address);
  if (it == ranges().begin()) return nullptr;
  --it;
  return address - it->second.base < it->second.bytes ? &it->second : nullptr;
}

Range& add_range(Range range) {
  static unsigned long long last_id = 0;
  range.id = ++last_id;
  return ranges()[range.base] = std::move(range);
}

CUresult check_device_range(std::uintptr_t address, std::size_t bytes, Access access) {
  std::uintptr_t at = address;
  std::size_t left = bytes;
  do {
    Range* range = find_range(at);
    // Work that was queued before a free still has the memory when it runs on a worker.
    if (range == nullptr || (range->freed && Call::current() != nullptr)) {
      return fail(CUDA_ERROR_INVALID_VALUE, "0x%zx (%zu bytes from 0x%zx) is no memory of the driver%s", at, bytes,
                  address, range != nullptr ? " any more: it was freed" : "");
    }
    if (access == Access::kRead ? !range->readable : !range->writable) {
      return fail(CUDA_ERROR_INVALID_VALUE, "0x%zx is mapped without %s access", at,
                  access == Access::kRead ? "read" : "write");
    }
    std::size_t step = std::min(left, range->base + range->bytes - at);
    at += step;
    left -= step;
  } while (left > 0);
  return CUDA_SUCCESS;
}

std::uintptr_t reserve_addresses(std::size_t bytes) {
  static std::uintptr_t cursor = 0, end = 0;
  std::size_t alignment = bytes >= kLarge ? kLargeAlignment : kPage;
  std::size_t size = round_up(bytes, kPage) + kPage;
  std::uintptr_t base = round_up(cursor, alignment);
  if (cursor == 0 || base + size > end) {
    std::size_t least = round_up(size, kLargeAlignment) + kLargeAlignment;
    std::size_t arena = std::max(kArenaBytes, least);
    void* at = MAP_FAILED;
    // Where address space is short (a sanitizer, a limit), a smaller arena does.
    for (; arena >= least; arena /= 2) {
      at = mmap(nullptr, arena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (at != MAP_FAILED) break;
    }
    if (at == MAP_FAILED) return 0;
    cursor = round_up(reinterpret_cast<std::uintptr_t>(at), kLargeAlignment);
    end = reinterpret_cast<std::uintptr_t>(at) + arena;
    base = cursor;
  }
  cursor = base + size;
  return base;
}

bool back_addresses(std::uintptr_t base, std::size_t bytes) {
  void* at = mmap(reinterpret_cast<void*>(base), round_up(bytes, kPage), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (at == MAP_FAILED) return false;
  if (poison() >= 0 && bytes <= (std::size_t{64} << 20)) std::memset(at, poison(), bytes);
  return true;
}

void unback_addresses(std::uintptr_t base, std::size_t bytes) {
  mmap(reinterpret_cast<void*>(base), round_up(bytes, kPage), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

CUresult allocate(Context& context, MemoryKind kind, std::size_t bytes, Range** out) {
  if (bytes == 0) return fail(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
  if (bytes > context.device->memory) {
    return fail(CUDA_ERROR_OUT_OF_MEMORY, "%zu bytes: the device has %zu", bytes, context.device->memory);
  }
  std::size_t charged = round_up(bytes, 512);
  SIM_TRY(charge(*context.device, charged, bytes));
  std::uintptr_t base = reserve_addresses(bytes);
  if (base == 0 || !back_addresses(base, bytes)) {
    refund(*context.device, charged);
    return fail(CUDA_ERROR_OUT_OF_MEMORY, "the host has no address space for %zu bytes", bytes);
  }
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = kind;
  range.device = context.device;
  range.context = context.handle;
  range.charged = charged;
  *out = &add_range(std::move(range));
  return CUDA_SUCCESS;
}

void release_range(std::uintptr_t base) {
  auto it = ranges().find(base);
  if (it == ranges().end()) return;
  Range& range = it->second;
  if (range.kind == MemoryKind::kHost) {
    munmap(reinterpret_cast<void*>(base), round_up(range.bytes, kPage));
  } else if (range.kind == MemoryKind::kDevice || range.kind == MemoryKind::kManaged ||
             range.kind == MemoryKind::kPooled || range.kind == MemoryKind::kGraph) {
    unback_addresses(base, range.bytes);
  }
  if (range.device != nullptr && range.charged != 0) refund(*range.device, range.charged);
  ranges().erase(it);
}

CUresult wait_and_release(std::uintptr_t base) {
  Range& range = ranges().at(base);
  range.freed = true;  // a second free meanwhile is refused
  CUcontext owner = range.context;
  Device* device = range.device;
  std::vector<std::shared_ptr<Context>> busy;
  for (const auto& [value, context] : contexts().all()) {
    if (context->alive && (context->device == device || device == nullptr)) busy.push_back(context);
  }
  for (const auto& context : busy) synchronize_context(*context);
  release_range(base);
  Context* context = contexts().get(owner);
  return context != nullptr ? context->sticky.load() : CUDA_SUCCESS;
}

void release_memory_of(Context& context) {
  std::vector<std::uintptr_t> mine;
  for (const auto& [base, range] : ranges()) {
    if (range.context == context.handle) mine.push_back(base);
  }
  for (std::uintptr_t base : mine) release_range(base);
}

bool copy_bytes(void* to, const void* from, std::size_t bytes) {
  // The kernel checks both sides. Where a sandbox forbids it there is only the plain copy, which faults.
  static const bool usable = [] {
    char a = 1, b = 0;
    iovec local{&b, 1}, remote{&a, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
  }();
  if (!usable) {
    std::memmove(to, from, bytes);
    return true;
  }
  std::size_t done = 0;
  while (done < bytes) {
    constexpr std::size_t kStep = std::size_t{256} << 20;
    iovec local{static_cast<char*>(to) + done, std::min(bytes - done, kStep)};
    iovec remote{const_cast<char*>(static_cast<const char*>(from)) + done, local.iov_len};
    ssize_t moved = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace foundry::sim
