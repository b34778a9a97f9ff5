// What differs between the builds of the hook: the sm target and its device code.
#pragma once

#include "csrc/device/code.h"

namespace foundry::hook {

const device::Code& device_code() noexcept;

// Whether code for `sm_target` runs on a device: sm_80 carries PTX for everything newer, sm_90 is machine code for 9.0.
constexpr bool runs_on(int sm_target, int major, int minor) {
  const int capability = 10 * major + minor;
  return sm_target == 80 ? capability >= 80 : capability == sm_target;
}

}  // namespace foundry::hook
