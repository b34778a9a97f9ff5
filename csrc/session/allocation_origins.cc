#include "csrc/session/allocation_origins.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "csrc/base/text.h"

namespace foundry::session {
namespace {

constexpr size_t kMostFrames = 4;  // of each kind

// What every allocation passes through tells nothing.
bool is_ours(std::string_view module) {
  static constexpr std::array<std::string_view, 3> kOurs = {"libcuda_hook.so", "_core.", "libcuda.so"};
  return std::any_of(kOurs.begin(), kOurs.end(), [&](std::string_view name) { return module.starts_with(name); });
}

void add(std::string& text, const std::string& frame) { text += (text.empty() ? "" : " < ") + frame; }

}  // namespace

std::string stack_text(const JournalView& journal, uint32_t stack) {
  if (stack == 0 || stack > journal.stacks.size()) return {};
  const archive::StackRecord& record = journal.stacks[stack - 1];
  std::string python;
  for (uint32_t i = 0; i < std::min<size_t>(record.python_frame_count, kMostFrames); ++i) {
    const archive::PythonFrameRecord& frame = journal.python_frames[record.first_python_frame + i];
    add(python, format("%s (%s:%u)", std::string(journal.text(frame.function)).c_str(),
                       std::string(journal.text(frame.file)).c_str(), frame.line));
  }
  std::string native;
  size_t shown = 0;
  for (uint32_t i = 0; i < record.frame_count && shown < kMostFrames; ++i) {
    const archive::FrameRecord& frame = journal.frames[record.first_frame + i];
    if (frame.module == archive::kNone) continue;
    const std::string module(journal.text(journal.modules[frame.module].name));
    if (is_ours(module)) continue;
    add(native, module + "+" + hex(frame.offset));
    ++shown;
  }
  return python.empty() || native.empty() ? python + native : python + "; " + native;
}

const JournalView& AllocationOrigins::journal() const {
  if (!tables_) {
    tables_ = std::make_unique<JournalTables>();
    if ((process_.abi().journal_level() & FOUNDRY_JOURNAL_STACKS) != 0) *tables_ = collect_journal(process_, {});
    view_ = tables_->view();
    for (const archive::JournalRecord& event : view_.events) {
      if (event.kind == FOUNDRY_EVENT_ALLOC && event.stack != 0) stacks_.emplace(event.ordinal, event.stack);
    }
  }
  return view_;
}

std::string AllocationOrigins::of(const foundry_range& allocation) const {
  const JournalView& view = journal();
  const auto found = stacks_.find(allocation.ordinal);
  return found == stacks_.end() ? std::string() : stack_text(view, found->second);
}

std::string AllocationOrigins::of_host(uint64_t address) const {
  const auto events = journal().events;
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->kind == FOUNDRY_EVENT_HOST_ALLOC && address - event->address < event->bytes) {
      return stack_text(view_, event->stack);
    }
  }
  return {};
}

}  // namespace foundry::session
