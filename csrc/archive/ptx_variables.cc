#include "csrc/archive/ptx_variables.h"

#include <cctype>
#include <cstddef>

namespace foundry::archive {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%'; }

// Tokens of PTX: directives (".global"), names, numbers, and single other characters; comments and strings are skipped.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  // Empty at the end.
  std::string_view next() {
    skip();
    if (at_ >= text_.size()) return {};
    const size_t begin = at_++;
    const char first = text_[begin];
    if (first == '.' || is_name(first)) {
      while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  void skip() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '\0') {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        to_behind("\n");
      } else if (text_.substr(at_, 2) == "/*") {
        at_ += 2;
        to_behind("*/");
      } else if (text_[at_] == '"') {
        ++at_;
        to_behind("\"");
      } else {
        return;
      }
    }
  }
  void to_behind(std::string_view mark) {
    const size_t found = text_.find(mark, at_);
    at_ = found == text_.npos ? text_.size() : found + mark.size();
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> ptx_variables(std::string_view ptx) {
  std::vector<std::string> names;
  Tokens tokens(ptx);
  size_t depth = 0;       // of braces, brackets and parentheses
  bool variable = false;  // inside a .global or .const statement at module scope
  bool external = false;
  bool value = false;  // behind '=' of a declarator
  std::string_view candidate;
  const auto finish_declarator = [&] {
    if (variable && !external && !candidate.empty()) names.emplace_back(candidate);
    candidate = {};
    value = false;
  };
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    const char first = token.front();
    if (first == '{' || first == '[' || first == '(') {
      ++depth;
    } else if (first == '}' || first == ']' || first == ')') {
      if (depth > 0) --depth;
      // A function's body ends without a semicolon.
      if (depth == 0 && first == '}' && !variable) external = false;
    } else if (depth > 0) {
      continue;
    } else if (first == ';') {
      finish_declarator();
      variable = external = false;
    } else if (first == ',') {
      finish_declarator();
    } else if (first == '=') {
      value = true;
    } else if (token == ".extern") {
      external = true;
    } else if (token == ".global" || token == ".const") {
      variable = true;
    } else if (variable && !value && first != '.' && std::isdigit(static_cast<unsigned char>(first)) == 0 &&
               is_name(first)) {
      candidate = token;
    }
  }
  return names;
}

}  // namespace foundry::archive
