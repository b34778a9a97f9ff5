// What FOUNDRY_JOURNAL asks for.
#pragma once

#include <cstdint>
#include <string_view>

#include "csrc/abi/foundry_abi.h"

namespace foundry::layout {

struct JournalLevel {
  bool events = false;     // allocations, frees, images, changes of state
  bool stacks = false;     // with the native frames of each
  bool python = false;     // and the Python frames
  bool understood = true;  // false: a word was unknown, and events are recorded

  uint32_t bits() const {
    return (events ? FOUNDRY_JOURNAL_EVENTS : 0u) | (stacks ? FOUNDRY_JOURNAL_STACKS : 0u) |
           (python ? FOUNDRY_JOURNAL_PYTHON : 0u);
  }

  // "off", "sizes", "stacks" or "stacks,python"; null or empty: sizes where that is the default, else off. Inline, and
  // without a call: the hook reads its settings before anything of the process is set up.
  static constexpr JournalLevel read(const char* text, bool sizes_by_default) {
    const std::string_view value = text == nullptr ? "" : text;
    if (value.empty()) return {sizes_by_default, false, false, true};
    if (value == "off") return {false, false, false, true};
    if (value == "sizes") return {true, false, false, true};
    if (value == "stacks") return {true, true, false, true};
    if (value == "stacks,python") return {true, true, true, true};
    return {true, false, false, false};
  }
};

}  // namespace foundry::layout
