// The owner of the zones inside the hook, and where plain allocations go.
#pragma once

#include <cstdint>

#include "csrc/abi/foundry_abi.h"

namespace foundry::layout {
class Zones;
}

namespace foundry::hook {

// The table behind foundry_abi_v1; null where the mode is off.
const foundry_abi* owner_table() noexcept;

// The zones, made on demand; null if that fails (recorded) or the hook is off.
layout::Zones* zones_made() noexcept;
// The zones if there are any, and CUDA works in this process.
layout::Zones* zones_if_any() noexcept;

// The zone for plain allocations of `device`, FOUNDRY_NO_ZONE for the driver. On SAVE the first allocation of a device
// opens its zone "ambient", so that what libraries allocate before a session is in it; set_ambient of the ABI overrides
// that for good.
uint32_t ambient_slot(int device) noexcept;
// No further allocation of `device` goes to a zone.
void stop_ambient(int device) noexcept;

// False (and the hook is switched off) where this build's device code does not fit the device.
bool fits(int device) noexcept;

}  // namespace foundry::hook
