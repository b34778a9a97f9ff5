// Tensors by address: what SAVE writes into memory.fdry and LOAD reads back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/archive/reader.h"
#include "csrc/archive/writer.h"
#include "csrc/base/result.h"

namespace foundry::session {

struct TensorInfo {
  std::string name;   // anchors and exports
  std::string dtype;  // the framework's name
  uint32_t item_bytes = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;                   // from the first to behind the last element
  std::vector<int64_t> sizes, strides;  // elements
  uint64_t storage_address = 0, storage_bytes = 0;
  uint32_t storage = archive::kNone;  // index; equal for aliases
  uint32_t flags = 0;                 // archive::TensorFlags
  std::optional<uint32_t> anchor;     // outputs: the anchor whose storage this one shares
};

// Bytes from the first to behind the last element; `invalid` where sizes and strides do not describe memory behind
// `address` (negative, or more than 2^63 bytes).
Result<uint64_t> extent_bytes(const TensorInfo& tensor);

// Collects tensors while saving; equal storages are stored once.
class TensorBook {
 public:
  Result<uint32_t> add(TensorInfo tensor);
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Writes `storages`, `tensors` and `dims`.
  Status write(archive::FileWriter& file) const;

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<archive::StorageRecord> storages_;
  boost::unordered_flat_map<uint64_t, uint32_t> storage_by_address_;
  boost::unordered_flat_map<uint32_t, uint32_t> anchor_of_storage_;
};

// All tensors of a validated memory file.
std::vector<TensorInfo> read_tensors(const archive::File& memory);

}  // namespace foundry::session
