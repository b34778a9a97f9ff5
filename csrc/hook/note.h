// The hook's entries in the journal.
#pragma once

#include <cstdint>

#include "csrc/abi/foundry_abi.h"
#include "csrc/hook/interposed.h"

namespace foundry::hook {

// Appends an event with an ordinal of its own and no zone. Nothing if the hook does not work or the journal is off.
void note(foundry_event_kind kind, const Row& row, uint64_t address, uint64_t bytes, uint64_t stream = 0) noexcept;

inline void note_state(const Row& row, uint64_t object, uint64_t value) noexcept {
  note(FOUNDRY_EVENT_STATE, row, object, value);
}

}  // namespace foundry::hook
