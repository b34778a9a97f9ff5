// What Foundry's threads did when, for a picture of the start (`foundry trace`). Off unless somebody asks for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foundry::trace {

struct Event {
  const char* name = "";             // what was done
  std::string detail;                // to which graph, image, ...
  uint32_t thread = 0;               // index into Recording::threads
  int64_t begin_ns = 0, end_ns = 0;  // CLOCK_MONOTONIC, as Python's time.monotonic_ns
  uint64_t bytes = 0, count = 0;
};

struct Recording {
  std::vector<std::string> threads;
  std::vector<Event> events;  // by end
  uint64_t dropped = 0;       // events beyond kMost
};

inline constexpr size_t kMost = size_t{1} << 20;

bool on();
// Recording begins, or ends; what was recorded stays until take().
void enable(bool yes);
// The calling thread's name in recordings; any other thread is "thread <system's number>".
void name_thread(std::string_view name);
// What was recorded since the last call.
Recording take();

// From construction to destruction. Costs one load where nothing is recorded.
class Span {
 public:
  explicit Span(const char* name) : begin_(on() ? now() : 0) {
    if (begin_ != 0) event_.name = name;
  }
  Span(const char* name, std::string_view detail) : Span(name) {
    if (begin_ != 0) event_.detail = detail;
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (begin_ != 0) end();
  }
  void bytes(uint64_t bytes) { event_.bytes = bytes; }
  void count(uint64_t count) { event_.count = count; }

 private:
  static int64_t now();
  void end() noexcept;

  const int64_t begin_;
  Event event_;
};

}  // namespace foundry::trace
