// Strings of one file: interned on writing, checked as UTF-8 on both sides.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "csrc/archive/records.h"

namespace foundry::archive {

inline constexpr uint32_t kMostNameBytes = 1u << 16;  // names of kernels, tensors, zones, files
inline constexpr uint32_t kMostTextBytes = 1u << 24;  // JSON texts

// UTF-8 as RFC 3629 has it, and no NUL: names go to C interfaces and to Python.
bool is_text(std::string_view bytes);

// Interned strings of one file: equal strings share their bytes.
class StringTable {
 public:
  // Text is UTF-8 without NUL; other input is reported by FileWriter::finish().
  StringRef add(std::string_view text);
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(data_.data(), data_.size())); }
  // Empty, or why the table cannot be written.
  const std::string& problem() const { return problem_; }

 private:
  std::string data_;
  boost::unordered_flat_map<std::string, StringRef> known_;
  std::string problem_;
};

}  // namespace foundry::archive
