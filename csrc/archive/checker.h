// What the validators of all kinds of files share: one place that words errors, and the common checks.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/archive/reader.h"
#include "csrc/archive/strings.h"

namespace foundry::archive {

// Thrown by Checker, caught by validate(); leaves this module as a value.
struct Damage {
  Error error;
};

// Overflow-free arithmetic on sizes from disk; false where the result does not fit.
inline bool add(uint64_t a, uint64_t b, uint64_t* out) { return !__builtin_add_overflow(a, b, out); }
inline bool multiply(uint64_t a, uint64_t b, uint64_t* out) { return !__builtin_mul_overflow(a, b, out); }

class Checker {
 public:
  explicit Checker(const File& file) : file_(file) {}

  // The record that following checks speak of.
  void at(Section section, size_t record) {
    section_ = section;
    record_ = record;
  }
  [[noreturn]] void fail(const std::string& why) const;
  [[noreturn]] void fail_file(const std::string& why) const;

  void require(bool fine, const char* why) const {
    if (!fine) fail(why);
  }
  // `value` indexes `count` records of `target`.
  void index(const char* field, uint64_t value, Section target, uint64_t count) const {
    if (value >= count) fail_index(field, value, target, count);
  }
  // [first, first + count) lies within `total` records (or bytes) of `target`.
  void range(const char* field, uint64_t first, uint64_t count, Section target, uint64_t total) const {
    if (first > total || count > total - first) fail_range(field, first, count, target, total);
  }
  void reserved(uint32_t value) const {
    if (value != 0) fail("a reserved field is not zero");
  }
  // A string within the strings section, on character boundaries (the section as a whole was checked by strings()).
  void text(const char* field, StringRef ref, uint32_t most = kMostNameBytes) const;
  void name(const char* field, StringRef ref) const {
    text(field, ref);
    if (ref.bytes == 0) fail(std::string(field) + " is empty");
  }
  // Address range that does not wrap and ends within 48 bits.
  void addresses(const char* field, uint64_t address, uint64_t bytes) const;

  // The strings section: UTF-8 without NUL.
  void strings() const;
  // Zone records of memory and journal files: names, places, no overlaps.
  template <Section S>
  void zones() {
    check_zones(S, file_.section<S>());
  }

 private:
  [[noreturn]] void fail_index(const char* field, uint64_t value, Section target, uint64_t count) const;
  [[noreturn]] void fail_range(const char* field, uint64_t first, uint64_t count, Section target, uint64_t total) const;
  void check_zones(Section section, std::span<const ZoneRecord> zones);

  const File& file_;
  Section section_{};
  size_t record_ = 0;
};

void validate_graphs(const File& file);
void validate_memory(const File& file);
void validate_journal(const File& file);
void validate_golden(const File& file);

}  // namespace foundry::archive
