// What went wrong without an application to tell: sentences that `foundry` shows later.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace foundry::layout {

// Thread-safe, bounded: a sentence that is already there is not stored again, and after kMost sentences one says so.
class Diagnoses {
 public:
  static constexpr size_t kMost = 256;

  void add(std::string sentence) noexcept;
  // Sentences joined by newlines, terminated by NUL, cut to `capacity`; returns the whole length without terminator.
  size_t copy(char* out, size_t capacity) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> sentences_;
};

}  // namespace foundry::layout
