#include "csrc/session/tensors.h"

#include "csrc/base/text.h"

namespace foundry::session {

using archive::Section;

Result<uint64_t> extent_bytes(const TensorInfo& tensor) {
  const auto refuse = [&](const char* why) {
    return Error{ErrorKind::invalid, 0, format("tensor '%s' %s", tensor.name.c_str(), why)};
  };
  if (tensor.sizes.size() != tensor.strides.size()) return refuse("has another number of strides than of sizes");
  if (tensor.item_bytes == 0) return refuse("has elements of 0 bytes");
  uint64_t last = 0;  // element index of the last element
  for (size_t dim = 0; dim < tensor.sizes.size(); ++dim) {
    const int64_t size = tensor.sizes[dim];
    const int64_t stride = tensor.strides[dim];
    if (size < 0 || stride < 0) return refuse("has a negative size or stride");
    if (size == 0) return uint64_t{0};
    uint64_t step = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(size - 1), static_cast<uint64_t>(stride), &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return refuse("spans more bytes than there are addresses");
    }
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(last + 1, uint64_t{tensor.item_bytes}, &bytes) || bytes > (uint64_t{1} << 63)) {
    return refuse("spans more bytes than there are addresses");
  }
  return bytes;
}

Result<uint32_t> TensorBook::add(TensorInfo tensor) {
  FOUNDRY_ASSIGN(tensor.bytes, extent_bytes(tensor));
  if (tensor.bytes == 0) {
    tensor.address = tensor.storage_address;  // no element, no place: frameworks report address 0
  }
  if (tensor.address < tensor.storage_address || tensor.address - tensor.storage_address > tensor.storage_bytes ||
      tensor.bytes > tensor.storage_bytes - (tensor.address - tensor.storage_address)) {
    return Error{ErrorKind::invalid, 0,
                 format("tensor '%s' at %s does not lie within its storage of %s at %s", tensor.name.c_str(),
                        hex(tensor.address).c_str(), bytes_text(tensor.storage_bytes).c_str(),
                        hex(tensor.storage_address).c_str())};
  }
  const auto [found, fresh] =
      storage_by_address_.emplace(tensor.storage_address, static_cast<uint32_t>(storages_.size()));
  if (fresh) {
    storages_.push_back({tensor.storage_address, tensor.storage_bytes});
  } else if (tensor.storage_bytes > storages_[found->second].bytes) {
    storages_[found->second].bytes = tensor.storage_bytes;  // the storage was resized between two registrations
  }
  tensor.storage = found->second;
  const auto index = static_cast<uint32_t>(tensors_.size());
  if ((tensor.flags & (archive::kConstant | archive::kMutable)) != 0) {
    anchor_of_storage_.emplace(tensor.storage, index);
  } else if (const auto anchor = anchor_of_storage_.find(tensor.storage); anchor != anchor_of_storage_.end()) {
    tensor.anchor = anchor->second;
  }
  tensors_.push_back(std::move(tensor));
  return index;
}

Status TensorBook::write(archive::FileWriter& file) const {
  std::vector<archive::TensorRecord> records;
  std::vector<int64_t> dims;
  records.reserve(tensors_.size());
  for (const TensorInfo& tensor : tensors_) {
    archive::TensorRecord record{};
    record.name = file.strings().add(tensor.name);
    record.dtype = file.strings().add(tensor.dtype);
    record.address = tensor.address;
    record.bytes = tensor.bytes;
    record.storage = tensor.storage;
    record.first_dim = static_cast<uint32_t>(dims.size());
    record.dim_count = static_cast<uint32_t>(tensor.sizes.size());
    record.flags = tensor.flags;
    record.anchor = tensor.anchor.value_or(archive::kNone);
    record.item_bytes = tensor.item_bytes;
    dims.insert(dims.end(), tensor.sizes.begin(), tensor.sizes.end());
    dims.insert(dims.end(), tensor.strides.begin(), tensor.strides.end());
    records.push_back(record);
  }
  FOUNDRY_TRY(file.put<Section::storages>(storages_));
  FOUNDRY_TRY(file.put<Section::tensors>(records));
  return file.put<Section::dims>(dims);
}

std::vector<TensorInfo> read_tensors(const archive::File& memory) {
  const auto dims = memory.section<Section::dims>();
  const auto storages = memory.section<Section::storages>();
  std::vector<TensorInfo> tensors;
  for (const archive::TensorRecord& record : memory.section<Section::tensors>()) {
    TensorInfo tensor;
    tensor.name = memory.view(record.name);
    tensor.dtype = memory.view(record.dtype);
    tensor.item_bytes = record.item_bytes;
    tensor.address = record.address;
    tensor.bytes = record.bytes;
    const auto sizes = dims.subspan(record.first_dim, record.dim_count);
    const auto strides = dims.subspan(record.first_dim + record.dim_count, record.dim_count);
    tensor.sizes.assign(sizes.begin(), sizes.end());
    tensor.strides.assign(strides.begin(), strides.end());
    tensor.storage = record.storage;
    tensor.storage_address = storages[record.storage].address;
    tensor.storage_bytes = storages[record.storage].bytes;
    tensor.flags = record.flags;
    if (record.anchor != archive::kNone) tensor.anchor = record.anchor;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace foundry::session
