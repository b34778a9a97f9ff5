// This process's driver table and the owner of its zones (the preloaded hook, else the core itself).
#pragma once

#include <string>
#include <vector>

#include "csrc/abi/foundry_abi.h"
#include "csrc/base/result.h"
#include "csrc/driver/driver.h"

namespace foundry::session {

class Process {
 public:
  // Binds driver and owner on the first success; afterwards always the same object. Fails with a sentence where there
  // is no driver or where the preloaded hook was built for another ABI.
  static Result<Process*> get();
  // Whether this is the child of a fork of a process where get() had succeeded. CUDA does not work here, threads of the
  // parent are gone, and locks may be held for ever: nothing may be waited for. Takes no lock itself.
  static bool forked() noexcept;
  // `state` in such a child; get() fails with it, too.
  static Status usable();
  // Called once, by the get() that succeeds first. For layers that this one does not know.
  static void when_ready(void (*call)(const foundry_abi&));

  const driver::Driver& driver() const { return driver_; }
  const foundry_abi& abi() const { return *abi_; }
  bool hooked() const { return hooked_; }

  // Primary context of a device, retained until the process ends: torch, cudart and Foundry share it.
  Result<CUcontext> context(int device);

  // Enumerations of the ABI as vectors.
  std::vector<foundry_zone_info> zones() const;
  std::vector<foundry_range> ranges(uint32_t slot) const;
  std::vector<foundry_expectation> unclaimed(uint32_t slot) const;
  std::vector<foundry_image> images() const;
  std::vector<foundry_event> events() const;
  std::vector<foundry_stack> stacks() const;
  std::vector<foundry_frame> frames() const;
  std::vector<foundry_python_frame> python_frames() const;
  std::vector<foundry_module> modules() const;
  std::vector<std::string> diagnoses() const;

 private:
  Process() = default;
  driver::Driver driver_;
  const foundry_abi* abi_ = nullptr;
  bool hooked_ = false;
};

// What an ABI call returned, as a Status.
Status abi_status(int code, const foundry_error& error);

// Calls a fallible ABI function: abi_call([&](foundry_error* e) { return abi.zone_free(address, 0, e); }).
template <class Call>
Status abi_call(Call&& call) {
  foundry_error error{};
  return abi_status(call(&error), error);
}

}  // namespace foundry::session
