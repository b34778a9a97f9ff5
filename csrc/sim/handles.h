// Handles: numbers that are never used twice, so that a stale one is recognised instead of followed.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "csrc/sim/runtime.h"

namespace foundry::sim {

enum class Kind : std::uint64_t {
  kContext = 1,
  kModule,
  kLibrary,
  kKernel,
  kFunction,
  kStream,
  kEvent,
  kGraph,
  kNode,
  kExec,
  kPool,
  kPhysical,
  kUserObject,
};

// Values lie below 0x0f00'0000'0000, where nothing is ever mapped by this driver: following one faults.
template <class Object, class Handle, Kind kind>
class HandleTable {
 public:
  Handle add(std::shared_ptr<Object> object) {
    std::uint64_t value = (static_cast<std::uint64_t>(kind) << 40) | (++last_ << 4);
    objects_.emplace(value, std::move(object));
    return to_handle(value);
  }

  std::shared_ptr<Object> find(Handle handle) const {
    auto it = objects_.find(to_value(handle));
    return it == objects_.end() ? nullptr : it->second;
  }
  Object* get(Handle handle) const {
    auto it = objects_.find(to_value(handle));
    return it == objects_.end() ? nullptr : it->second.get();
  }
  std::shared_ptr<Object> remove(Handle handle) {
    auto it = objects_.find(to_value(handle));
    if (it == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(it->second);
    objects_.erase(it);
    return object;
  }
  // For messages: why is the handle not one of the table?
  const char* why_not(Handle handle) const {
    std::uint64_t value = to_value(handle);
    if (value == 0) return "null";
    bool mine = (value >> 40) == static_cast<std::uint64_t>(kind) && (value & 15) == 0;
    return mine && ((value & ((std::uint64_t{1} << 40) - 1)) >> 4) <= last_ ? "destroyed already" : "never handed out";
  }
  std::size_t size() const { return objects_.size(); }
  const auto& all() const { return objects_; }

 private:
  static Handle to_handle(std::uint64_t value) {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<Handle>(value);
    } else {
      return static_cast<Handle>(value);
    }
  }
  static std::uint64_t to_value(Handle handle) {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<std::uint64_t>(handle);
    } else {
      return static_cast<std::uint64_t>(handle);
    }
  }

  std::unordered_map<std::uint64_t, std::shared_ptr<Object>> objects_;
  std::uint64_t last_ = 0;
};

}  // namespace foundry::sim
