#include "csrc/layout/diagnoses.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace foundry::layout {

void Diagnoses::add(std::string sentence) noexcept {
  try {
    std::replace(sentence.begin(), sentence.end(), '\n', ' ');
    const std::lock_guard lock(mutex_);
    if (sentences_.size() >= kMost) return;
    if (std::find(sentences_.begin(), sentences_.end(), sentence) != sentences_.end()) return;
    if (sentences_.size() + 1 == kMost) sentence = "there were more diagnoses; only the first ones are kept";
    sentences_.push_back(std::move(sentence));
  } catch (...) {
    // No host memory left to say so in; the application notices by itself.
  }
}

size_t Diagnoses::copy(char* out, size_t capacity) const {
  const std::lock_guard lock(mutex_);
  size_t length = 0;
  for (const std::string& sentence : sentences_) {
    const bool first = length == 0;
    for (size_t i = first ? 1 : 0; i <= sentence.size(); ++i) {
      if (length + 1 < capacity) out[length] = i == 0 ? '\n' : sentence[i - 1];
      ++length;
    }
  }
  if (capacity > 0) out[std::min(length, capacity - 1)] = '\0';
  return length;
}

}  // namespace foundry::layout
