#include "csrc/layout/journal.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace foundry::layout {

void Journal::append(foundry_event event) noexcept {
  if (!recording()) return;
  if (event.entry_point == nullptr) event.entry_point = "";
  try {
    const std::lock_guard lock(mutex_);
    if (size_ == chunks_.size() * kChunkEvents) chunks_.push_back(std::make_unique<foundry_event[]>(kChunkEvents));
    chunks_[size_ / kChunkEvents][size_ % kChunkEvents] = event;
    ++size_;
  } catch (...) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }
}

size_t Journal::copy(uint64_t first, foundry_event* out, size_t capacity) const {
  const std::lock_guard lock(mutex_);
  if (first >= size_) return 0;
  const uint64_t there = size_ - first;
  const uint64_t end = first + std::min<uint64_t>(there, capacity);
  for (uint64_t at = first; at < end;) {
    const uint64_t within = at % kChunkEvents;
    const uint64_t run = std::min(end - at, kChunkEvents - within);
    const foundry_event* chunk = chunks_[at / kChunkEvents].get();
    std::copy(chunk + within, chunk + within + run, out + (at - first));
    at += run;
  }
  return there;
}

uint64_t Journal::size() const {
  const std::lock_guard lock(mutex_);
  return size_;
}

uint32_t thread_id() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

}  // namespace foundry::layout
