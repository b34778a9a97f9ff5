#include "csrc/archive/strings.h"

#include <cstdint>
#include <limits>

namespace foundry::archive {

bool is_text(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    const auto lead = static_cast<uint8_t>(bytes[i]);
    if (lead == 0) return false;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || bytes.size() - i <= static_cast<size_t>(more)) return false;
    uint32_t point = lead & (0x3f >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<uint8_t>(bytes[i + static_cast<size_t>(k)]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3f);
    }
    static constexpr uint32_t kShortest[] = {0, 0x80, 0x800, 0x10000};
    if (point < kShortest[more] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return false;
    i += static_cast<size_t>(more) + 1;
  }
  return true;
}

StringRef StringTable::add(std::string_view text) {
  if (text.empty()) return {0, 0};
  const auto found = known_.find(std::string(text));
  if (found != known_.end()) return found->second;
  if (!is_text(text)) {
    if (problem_.empty()) problem_ = "a string is not UTF-8 or holds a NUL";
    return {0, 0};
  }
  if (data_.size() + text.size() > std::numeric_limits<uint32_t>::max()) {
    if (problem_.empty()) problem_ = "the strings are more than 4 GiB";
    return {0, 0};
  }
  const StringRef ref{static_cast<uint32_t>(data_.size()), static_cast<uint32_t>(text.size())};
  data_ += text;
  known_.emplace(text, ref);
  return ref;
}

}  // namespace foundry::archive
