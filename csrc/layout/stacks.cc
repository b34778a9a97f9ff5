#include "csrc/layout/stacks.h"

#include <unwind.h>

#include <algorithm>
#include <cstring>

namespace foundry::layout {
namespace {

struct Walk {
  uint64_t* addresses;
  size_t count;
};

_Unwind_Reason_Code step(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  int before_instruction = 0;
  const uint64_t address = _Unwind_GetIPInfo(context, &before_instruction);
  if (address == 0) return _URC_END_OF_STACK;
  // A return address may already belong to the next line or function: the call lies before it.
  walk.addresses[walk.count++] = before_instruction != 0 ? address : address - 1;
  return walk.count == Stacks::kDeepest ? _URC_END_OF_STACK : _URC_NO_REASON;
}

uint64_t hash_of(const std::vector<uint64_t>& words) {
  uint64_t hash = words.size();
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

template <class Record>
size_t copy_list(const std::vector<Record>& list, Record* out, size_t capacity) {
  std::copy_n(list.begin(), std::min(capacity, list.size()), out);
  return list.size();
}

// reserve() that keeps appending cheap.
template <class Record>
void make_room(std::vector<Record>& list, size_t more) {
  if (list.capacity() - list.size() < more) list.reserve(std::max(list.size() + more, 2 * list.capacity()));
}

}  // namespace

uint32_t Stacks::take() noexcept {
  if (!native_.load(std::memory_order_relaxed)) return 0;
  uint64_t addresses[kDeepest];
  Walk walk{addresses, 0};
  _Unwind_Backtrace(step, &walk);
  foundry_python_frame python[kDeepestPython];
  size_t python_count = 0;
  if (python_.load(std::memory_order_relaxed)) {
    const foundry_python_walker walker = walker_.load(std::memory_order_acquire);
    if (walker != nullptr) python_count = std::min(walker(python, kDeepestPython), kDeepestPython);
  }
  return keep(addresses, walk.count, python, python_count);
}

uint32_t Stacks::keep(const uint64_t* addresses, size_t count, const foundry_python_frame* python,
                      size_t python_count) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    key_.assign(addresses, addresses + count);
    for (size_t i = 0; i < python_count; ++i) {
      key_.insert(key_.end(), {text(python[i].function), text(python[i].file), python[i].line});
    }
    // Keys with one hash follow each other: hash, hash + 1, ...
    uint64_t hash = hash_of(key_);
    for (;; ++hash) {
      const auto known = by_hash_.find(hash);
      if (known == by_hash_.end()) break;
      const Entry& entry = entries_[known->second];
      const bool same_shape = entry.words == key_.size() && stacks_[known->second].frame_count == count;
      if (same_shape &&
          std::equal(key_.begin(), key_.end(), keys_.begin() + static_cast<ptrdiff_t>(entry.first_word))) {
        return 1 + known->second;
      }
    }
    if (entries_.size() < kMost) return add(hash, key_, count);
  } catch (...) {  // no host memory: the event goes without
  }
  dropped_.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

uint32_t Stacks::add(uint64_t hash, const std::vector<uint64_t>& key, size_t native) {
  const auto number = static_cast<uint32_t>(entries_.size());
  const size_t python = (key.size() - native) / 3;
  // Everything that can fail comes before the first change that others see.
  make_room(keys_, key.size());
  make_room(frames_, native);
  make_room(python_frames_, python);
  make_room(stacks_, 1);
  make_room(entries_, 1);
  modules_.refresh();
  std::vector<foundry_frame> frames;
  for (size_t i = 0; i < native; ++i) frames.push_back(modules_.locate(key[i]));
  by_hash_.emplace(hash, number);

  stacks_.push_back({static_cast<uint32_t>(frames_.size()), static_cast<uint32_t>(native),
                     static_cast<uint32_t>(python_frames_.size()), static_cast<uint32_t>(python)});
  entries_.push_back({keys_.size(), static_cast<uint32_t>(key.size())});
  keys_.insert(keys_.end(), key.begin(), key.end());
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  for (size_t at = native; at < key.size(); at += 3) {
    python_frames_.push_back(
        {texts_[key[at]].c_str(), texts_[key[at + 1]].c_str(), static_cast<uint32_t>(key[at + 2]), 0});
  }
  return 1 + number;
}

uint32_t Stacks::text(const char* text) {
  const std::string_view wanted(text == nullptr ? "" : text, text == nullptr ? 0 : strnlen(text, kLongestName));
  if (const auto known = text_numbers_.find(wanted); known != text_numbers_.end()) return known->second;
  const auto number = static_cast<uint32_t>(texts_.size());
  texts_.emplace_back(wanted);
  text_numbers_.emplace(texts_.back(), number);
  return number;
}

size_t Stacks::copy(foundry_stack* out, size_t capacity) const {
  const std::lock_guard lock(mutex_);
  return copy_list(stacks_, out, capacity);
}

size_t Stacks::copy(foundry_frame* out, size_t capacity) const {
  const std::lock_guard lock(mutex_);
  return copy_list(frames_, out, capacity);
}

size_t Stacks::copy(foundry_python_frame* out, size_t capacity) const {
  const std::lock_guard lock(mutex_);
  return copy_list(python_frames_, out, capacity);
}

size_t Stacks::copy(foundry_module* out, size_t capacity) const {
  const std::lock_guard lock(mutex_);
  return modules_.copy(out, capacity);
}

}  // namespace foundry::layout
