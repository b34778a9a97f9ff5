#include "csrc/hook/note.h"

#include "csrc/hook/settings.h"
#include "csrc/layout/journal.h"
#include "csrc/layout/owner.h"

namespace foundry::hook {

void note(foundry_event_kind kind, const Row& row, uint64_t address, uint64_t bytes, uint64_t stream) noexcept {
  if (!working() || !settings().journal.events) return;
  contained("the journal", [&] {
    layout::Journal& journal = layout::owner_journal();
    foundry_event event{};
    event.stack = journal.stack();
    event.ordinal = journal.next_ordinal();
    event.address = address;
    event.bytes = bytes;
    event.stream = stream;
    event.kind = kind;
    event.slot = FOUNDRY_NO_ZONE;
    event.thread = layout::thread_id();
    event.entry_point = row.symbol;
    journal.append(event);
  });
}

}  // namespace foundry::hook
