// Zones: named windows of device addresses, what is allocated in them, and when it may go away.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/result.h"
#include "csrc/driver/driver.h"
#include "csrc/layout/diagnoses.h"
#include "csrc/layout/journal.h"

namespace foundry::layout {

// An odd upper half: kernel arguments hold pairs of 32-bit strides such as 4096 and 8192, which read as addresses would
// fall into windows at 0x1000_0000_0000 or 0x2000_0000_0000 (seen with torch's scatter kernels).
inline constexpr uint64_t kDefaultBase = 0x113700000000;
inline constexpr uint64_t kDefaultWindow = uint64_t{4} << 40;
// Executables, heaps and host mappings lie from here on.
inline constexpr uint64_t kAddressLimit = 0x550000000000;
inline constexpr uint64_t kSmallestPage = uint64_t{2} << 20;
// What cudaMalloc does for allocations below 1 MiB: shared 2 MiB chunks, parts aligned to 512 bytes.
inline constexpr uint64_t kSmallLimit = uint64_t{1} << 20;
inline constexpr uint64_t kSmallAlignment = 512;

// Where windows lie. FOUNDRY_BASE and FOUNDRY_WINDOW (hexadecimal) move and shrink them: the default lies in the shadow
// memory of sanitizers.
struct Windows {
  uint64_t base = kDefaultBase;
  uint64_t bytes = kDefaultWindow;

  static Result<Windows> from_environment();
  // FOUNDRY_MAX_ZONES, or fewer where they would reach kAddressLimit.
  uint32_t count() const;
};

struct AllocRequest {
  uint64_t bytes = 0;
  uint64_t alignment = 0;  // power of two; 0: default
  uint64_t stream = 0;
  const char* entry_point = "zone_alloc";  // static string, for the journal
  bool shares_pages = false;               // small ones may share pages, as all of the ambient zone do
};

struct FreeRequest {
  uint64_t stream = 0;
  const char* entry_point = "zone_free";
};

// Thread-safe; one per process (owner.h holds it). No call holds the lock while it waits for the device.
//
// Every call first carries out frees that a capture had put off, once no capture runs. Where a thread has no context of
// the zone's device current, the device's primary context is used for the call.
class Zones {
 public:
  Zones(driver::Driver driver, Journal& journal, Diagnoses& diagnoses, Windows windows);
  // Leaves the device alone: at process exit the driver may be gone already. close_all() gives memory back.
  ~Zones();
  Zones(const Zones&) = delete;
  Zones& operator=(const Zones&) = delete;

  // Returns the slot of zone (device, name). Base 0 takes the next free window that the driver grants where asked; a
  // base from an archive is taken or refused with what occupies it. Size 0 is a whole window. Opening a zone again is
  // no error if kind, base and size (where given) agree.
  Result<uint32_t> open(int device, const std::string& name, uint32_t kind, uint64_t base, uint64_t size);
  // Unmaps everything and frees the window, however far that goes; the first thing that failed is the result, and what
  // could not be freed stays with the zone, so that a later call can try again. A closed slot is no error.
  Status close(uint32_t slot);
  Status close_all();

  // LOAD, once per rebuilt zone, before its allocations: the recorded allocations in recorded order, those freed on
  // SAVE included. An allocation takes the first unclaimed one of exactly its size, else the first whose size rounds up
  // to the same number of pages (growth within a page must not move it), else an address behind `used_end`. Nothing
  // shifts.
  Status expect(uint32_t slot, std::span<const foundry_expectation> list, uint64_t used_end);

  // New addresses grow upwards and are never handed out twice. Once sealed: plain driver memory.
  Result<uint64_t> alloc(uint32_t slot, const AllocRequest& request);
  // Rebuilt zones: waits for the device, then unmaps. Other zones: quarantine, mapped until release_quarantine.
  Status free(uint64_t address, const FreeRequest& request = {});
  // One physical allocation at exactly [address, address+bytes), whole pages, for recorded content.
  Status map(uint32_t slot, uint64_t address, uint64_t bytes);
  Status unmap(uint64_t address);
  // Counts: a range stays mapped until it was unpinned as often as it was pinned. `invalid` if no range is there.
  Status pin(uint64_t address, uint64_t bytes, bool pinned);
  // Unmaps quarantined ranges of one zone, or of all (FOUNDRY_NO_ZONE), oldest first; pinned ones stay.
  Status release_quarantine(uint32_t slot_or_no_zone);

  size_t zones(foundry_zone_info* out, size_t capacity) const;
  size_t ranges(uint32_t slot, foundry_range* out, size_t capacity) const;
  size_t unclaimed(uint32_t slot, foundry_expectation* out, size_t capacity) const;
  // Without a lock: the hook asks for every address an application frees or inspects.
  bool in_zone(uint64_t address, uint32_t* slot = nullptr) const;
  // The range, live or not, that covers `address`.
  std::optional<foundry_range> find(uint64_t address) const;
  // "0x... lies 512 B into allocation 17 (2.00 MiB) of zone 'ambient' on device 0, freed as ..."
  std::string describe(uint64_t address) const;

  Status set_ambient(int device, uint32_t slot_or_no_zone);
  // Without a lock: FOUNDRY_NO_ZONE where plain allocations of `device` go to the driver, always so once sealed.
  uint32_t ambient(int device) const;
  // +1 waits until no other thread is waiting for the device on behalf of a free; after that none does until -1.
  void capture_delta(int delta);
  bool capturing() const { return captures_.load() > 0; }
  void seal(bool sealed) { sealed_.store(sealed); }
  bool sealed() const { return sealed_.load(); }

  const driver::Driver& driver() const { return driver_; }

 private:
  static constexpr size_t kMaxDevices = 64;
  struct Window {
    std::atomic<uint64_t> begin{0}, end{0};
  };
  struct Books;    // what is where; zone.h
  struct Release;  // which freed ranges to unmap now

  void settle();
  Status release(const Release& which);
  Status release_locked(const Release& which);
  Status unmap_freed(uint64_t freed_at);
  Result<uint64_t> alloc_plain(uint32_t slot, const AllocRequest& request, uint32_t stack);

  driver::Driver driver_;
  Journal& journal_;
  Diagnoses& diagnoses_;
  const Windows windows_;

  std::array<Window, FOUNDRY_MAX_ZONES> bounds_;
  std::array<std::atomic<uint32_t>, kMaxDevices> ambient_;
  std::atomic<int> captures_{0};
  std::atomic<bool> sealed_{false};
  std::unique_ptr<Books> books_;
};

}  // namespace foundry::layout
