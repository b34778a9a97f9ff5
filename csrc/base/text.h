// Small text helpers shared by messages: hex addresses, byte counts, joining, printf-like formatting.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace foundry {

// "0x100000200000"
std::string hex(uint64_t value);
// "2.00 MiB", "512 B": what people read, powers of 1024.
std::string bytes_text(uint64_t bytes);
// printf into a std::string.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
// A C++ or C symbol as people read it; returns the input where it is no mangled name.
std::string demangle(const std::string& symbol);
// JSON string literal with quotes; input is taken as UTF-8, control characters are escaped.
std::string json_quote(std::string_view text);

}  // namespace foundry
