// Errors as values: every module border returns Result<T> or Status; exceptions stay inside a module.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace foundry {

// What kind of failure this is, so that callers can choose between "repair", "refuse" and "tell the user".
enum class ErrorKind {
  driver,         // the CUDA driver returned an error; `code` is the CUresult
  invalid,        // the caller's input is wrong
  corrupt,        // bytes from disk do not hold together
  mismatch,       // valid archive, but not for this GPU, driver or process
  unsupported,    // Foundry does not handle this (yet); the message names it
  out_of_memory,  // device memory, address space or threads
  io,             // the operating system refused a file operation; `code` is errno
  state,          // called at the wrong time (closed session, no hook, capture in progress)
};

struct Error {
  ErrorKind kind = ErrorKind::invalid;
  int code = 0;      // CUresult or errno where there is one
  std::string text;  // one or two sentences: what, where, what to do

  // Puts "where" in front of the sentence: "graph decode/8, node 12 (kernel f): ...".
  Error within(const std::string& where) && {
    text = where + ": " + text;
    return std::move(*this);
  }
};

struct Unit {};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : value_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(value_); }
  const T& value() const& { return std::get<0>(value_); }
  T&& value() && { return std::get<0>(std::move(value_)); }
  T* operator->() { return &value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const Error& error() const& { return std::get<1>(value_); }
  Error&& error() && { return std::get<1>(std::move(value_)); }

 private:
  std::variant<T, Error> value_;
};

using Status = Result<Unit>;
inline Status success() { return Unit{}; }

}  // namespace foundry

// FOUNDRY_TRY(expr): returns the error of a Status/Result from the enclosing function.
// FOUNDRY_ASSIGN(lhs, expr): same, and moves the value into `lhs` (a declaration or an lvalue).
#define FOUNDRY_CONCAT_(a, b) a##b
#define FOUNDRY_CONCAT(a, b) FOUNDRY_CONCAT_(a, b)
#define FOUNDRY_TRY(expr)                                                         \
  do {                                                                            \
    auto foundry_try_result_ = (expr);                                            \
    if (!foundry_try_result_.ok()) return std::move(foundry_try_result_).error(); \
  } while (false)
#define FOUNDRY_ASSIGN(lhs, expr) FOUNDRY_ASSIGN_(lhs, expr, FOUNDRY_CONCAT(foundry_assign_, __COUNTER__))
#define FOUNDRY_ASSIGN_(lhs, expr, tmp)         \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  lhs = std::move(tmp).value()
