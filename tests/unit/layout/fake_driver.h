// A driver table in memory: keeps the rules of virtual memory management, fails where a test says so.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "csrc/driver/driver.h"

namespace foundry::layout::testing {

// One at a time; driver functions act on the one that lives. Rules broken by the caller end up in `violations`.
class FakeDriver {
 public:
  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  driver::Driver table() const;

  // Lets calls of `name` fail with `code`, after `skip` good ones, `times` times.
  void fail(const std::string& name, CUresult code, int skip = 0, int times = 1);
  int calls(const std::string& name);
  std::vector<std::string> log();
  std::vector<std::string> violations();
  // Bytes at `address` are mapped and accessible to `device`.
  bool accessible(uint64_t address, int device);
  std::map<uint64_t, uint64_t> mapped();  // address -> bytes
  uint64_t physical();                    // bytes in use
  size_t reservations();
  int primary_references(int device);

  // Settings; change them only while no other thread uses the driver.
  uint64_t granularity = uint64_t{2} << 20;
  uint64_t capacity = uint64_t{1} << 40;
  int devices = 2;
  bool rdma = false;
  std::map<uint64_t, uint64_t> land_elsewhere;  // asked base -> where reservations go instead
  std::function<void()> on_synchronize;         // called without the lock
  bool capturing = false;                       // waiting or unmapping now is a violation

 private:
  friend struct Calls;
  struct Failure {
    CUresult code;
    int skip, times;
  };
  struct Handle {
    uint64_t bytes;
    int device;
    int mappings;
    bool released;
    bool rdma;
  };
  struct Mapping {
    uint64_t bytes;
    CUmemGenericAllocationHandle handle;
    std::set<int> devices;
  };

  CUresult enter(const char* name);
  void violate(const std::string& text) { violations_.push_back(text); }
  void drop(CUmemGenericAllocationHandle handle);

  std::mutex mutex_;
  std::map<std::string, Failure> failures_;
  std::map<std::string, int> calls_;
  std::vector<std::string> log_, violations_;
  std::map<uint64_t, uint64_t> reservations_;
  std::map<CUmemGenericAllocationHandle, Handle> handles_;
  std::map<uint64_t, Mapping> mappings_;
  std::map<uint64_t, uint64_t> plain_;
  std::map<int, int> primary_;
  uint64_t next_handle_ = 1, next_plain_ = 0x7f0000000000, physical_ = 0;
};

// The context the fake counts as a non-primary one of `device`, and setting the calling thread's context.
CUcontext own_context(int device);
void set_current(CUcontext context);

}  // namespace foundry::layout::testing
