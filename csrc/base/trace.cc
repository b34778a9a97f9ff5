#include "csrc/base/trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <utility>

#include "csrc/base/text.h"

namespace foundry::trace {
namespace {

std::atomic<bool> recording{false};

struct Store {
  std::mutex mutex;
  Recording recording;
  uint64_t generation = 1;  // counts calls of take(): thread indices belong to one recording
};

Store& store() {
  static auto* const kept = new Store;  // never destroyed: threads may outlive static objects
  return *kept;
}

struct Thread {
  std::string name;
  uint64_t generation = 0;
  uint32_t index = 0;
};
thread_local Thread this_thread;

}  // namespace

bool on() { return recording.load(std::memory_order_relaxed); }

void enable(bool yes) { recording.store(yes); }

void name_thread(std::string_view name) {
  if (!on()) return;
  this_thread.name = name;
  this_thread.generation = 0;
}

int64_t Span::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Span::end() noexcept {
  try {
    event_.begin_ns = begin_;
    event_.end_ns = now();
    Store& kept = store();
    const std::lock_guard lock(kept.mutex);
    if (kept.recording.events.size() >= kMost) {
      ++kept.recording.dropped;
      return;
    }
    Thread& thread = this_thread;
    if (thread.generation != kept.generation) {
      if (thread.name.empty()) thread.name = format("thread %ld", static_cast<long>(syscall(SYS_gettid)));
      thread.index = static_cast<uint32_t>(kept.recording.threads.size());
      kept.recording.threads.push_back(thread.name);
      thread.generation = kept.generation;
    }
    event_.thread = thread.index;
    kept.recording.events.push_back(std::move(event_));
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(store().mutex);
    ++store().recording.dropped;
  }
}

Recording take() {
  Store& kept = store();
  const std::lock_guard lock(kept.mutex);
  ++kept.generation;
  return std::exchange(kept.recording, {});
}

}  // namespace foundry::trace
