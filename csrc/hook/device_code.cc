// The device code of this build. Nothing in the hook launches it: SAVE asks for it through the owner's table.
#include "csrc/hook/device_code.h"

#ifndef FOUNDRY_SM_TARGET
#error "FOUNDRY_SM_TARGET says which device code this build carries: 80 or 90"
#endif

namespace foundry::hook {

const device::Code& device_code() noexcept {
#if FOUNDRY_SM_TARGET == 80
  return device::code_sm80();
#elif FOUNDRY_SM_TARGET == 90
  return device::code_sm90();
#else
#error "there is device code for sm_80 and sm_90"
#endif
}

}  // namespace foundry::hook
