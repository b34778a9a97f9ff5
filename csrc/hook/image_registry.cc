#include "csrc/hook/image_registry.h"

#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/driver/driver.h"
#include "csrc/hook/image_bytes.h"
#include "csrc/hook/image_memory.h"
#include "csrc/hook/note.h"
#include "csrc/hook/owner.h"
#include "csrc/hook/resolve.h"
#include "csrc/hook/settings.h"

namespace foundry::hook {
namespace {

// Bytes of an image: in `owned`, or somewhere that stays mapped.
struct Bytes {
  foundry_image_format format = FOUNDRY_IMAGE_FATBIN;
  const void* data = nullptr;
  uint64_t bytes = 0;
  std::unique_ptr<unsigned char[]> owned;
  std::string source;
};

struct Registry {
  std::mutex mutex;
  // Never shrink: the ABI hands out pointers into them.
  std::deque<foundry_image> images;
  std::deque<Bytes> bytes;
  std::deque<CUcontext> contexts;
  // The image that a handle stands for now.
  std::unordered_map<const void*, uint64_t> loaded[2];
};

Registry& registry() {
  static Registry& instance = *new Registry;  // outlives every caller
  return instance;
}

Result<Bytes> copied(const ReadImage& read, std::string source) {
  FOUNDRY_ASSIGN(const ImageExtent extent, image_extent(read));
  Bytes result;
  result.format = extent.format;
  result.bytes = extent.bytes;
  result.owned.reset(new unsigned char[extent.bytes]);
  if (!read(0, result.owned.get(), extent.bytes)) {
    return Error{ErrorKind::corrupt, 0,
                 format("an image of %s is readable in part only", bytes_text(extent.bytes).c_str())};
  }
  result.data = result.owned.get();
  result.source = std::move(source);
  return result;
}

Result<Bytes> bytes_at(const void* image) {
  const auto file_of = [](const void* address) { return mapped_file(address); };
  const auto reader = [](const void* begin, const std::optional<MappedFile>& file) -> ReadImage {
    if (file) {
      return [begin, bound = file->bytes](uint64_t offset, void* out, size_t count) {
        if (offset > bound || count > bound - offset) return false;
        std::memcpy(out, static_cast<const char*>(begin) + offset, count);
        return true;
      };
    }
    return [begin](uint64_t offset, void* out, size_t count) {
      return copy_memory(static_cast<const char*>(begin) + offset, out, count);
    };
  };

  std::optional<MappedFile> file = file_of(image);
  ReadImage read = reader(image, file);
  FOUNDRY_ASSIGN(const Wrapper wrapper, unwrap(read));
  if (wrapper.is_wrapper) {
    image = wrapper.data;
    file = file_of(image);
    read = reader(image, file);
  }
  if (!file || file->writable || !keep_loaded(file->path)) return copied(read, file ? file->path : "");

  FOUNDRY_ASSIGN(const ImageExtent extent, image_extent(read));
  if (extent.bytes > file->bytes) {
    return Error{ErrorKind::corrupt, 0,
                 format("an image in %s says that it has %s, %s more than its segment", file->path.c_str(),
                        bytes_text(extent.bytes).c_str(), bytes_text(extent.bytes - file->bytes).c_str())};
  }
  Bytes result;
  result.format = extent.format;
  result.data = image;
  result.bytes = extent.bytes;
  result.source = std::move(file->path);
  return result;
}

Result<Bytes> bytes_of_file(const char* path) {
  std::optional<std::string> content = read_file(path, kMostImageBytes);
  if (!content) return Error{ErrorKind::io, errno, format("it cannot be read (%s)", std::strerror(errno))};
  content->push_back('\0');  // PTX in a file has no terminator
  return copied(
      [&content](uint64_t offset, void* out, size_t count) {
        if (offset > content->size() || count > content->size() - offset) return false;
        std::memcpy(out, content->data() + offset, count);
        return true;
      },
      path);
}

CUcontext current_context() {
  const driver::Driver* table = driver_table();
  CUcontext context = nullptr;
  return table != nullptr && table->cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// A build for another architecture records nothing it could not save anyway.
bool device_fits() {
  const driver::Driver* table = driver_table();
  CUdevice device = 0;
  if (table == nullptr) return false;
  return table->cuCtxGetDevice(&device) != CUDA_SUCCESS || fits(device);
}

void add(const Row& row, void* handle, bool is_library, Result<Bytes> read, const char* where) {
  if (!read.ok()) {
    diagnose(
        format("the image that %s loaded from %s was not recorded: %s; graphs that use its kernels cannot be saved",
               row.symbol, where, read.error().text.c_str()));
    return;
  }
  const CUcontext context = is_library ? nullptr : current_context();
  Registry& all = registry();
  uint64_t bytes = 0;
  {
    const std::lock_guard lock(all.mutex);
    Bytes& stored = all.bytes.emplace_back(std::move(read).value());
    all.contexts.push_back(context);
    foundry_image image{};
    image.id = all.images.size();
    image.handle = handle;
    image.is_library = is_library ? 1 : 0;
    image.format = stored.format;
    image.loaded = 1;
    image.data = stored.data;
    image.bytes = bytes = stored.bytes;
    image.entry_point = row.symbol;
    image.source = stored.source.c_str();
    all.loaded[image.is_library][handle] = image.id;
    all.images.push_back(image);
  }
  note(FOUNDRY_EVENT_IMAGE_LOAD, row, reinterpret_cast<uint64_t>(handle), bytes);
}

}  // namespace

bool records_images() noexcept {
  return working() && (settings().mode == Mode::save || settings().mode == Mode::automatic);
}

void record_image(const Row& row, void* handle, bool is_library, const void* image) noexcept {
  contained("recording a code image", [&] {
    if (image == nullptr || !device_fits()) return;
    add(row, handle, is_library, bytes_at(image), hex(reinterpret_cast<uint64_t>(image)).c_str());
  });
}

void record_image_file(const Row& row, void* handle, bool is_library, const char* path) noexcept {
  contained("recording a code image", [&] {
    if (path == nullptr || !device_fits()) return;
    add(row, handle, is_library, bytes_of_file(path), path);
  });
}

Unloading::Unloading(const Row& row, void* handle, bool is_library) noexcept {
  contained("noting an unload", [&] {
    Registry& all = registry();
    {
      const std::lock_guard lock(all.mutex);
      const auto found = all.loaded[is_library ? 1 : 0].find(handle);
      if (found == all.loaded[is_library ? 1 : 0].end()) return;
      id_ = found->second;
      all.images[id_].loaded = 0;
      all.loaded[is_library ? 1 : 0].erase(found);
    }
    note(FOUNDRY_EVENT_IMAGE_UNLOAD, row, reinterpret_cast<uint64_t>(handle), 0);
  });
}

void Unloading::failed() noexcept {
  contained("noting an unload", [&] {
    if (id_ == ~uint64_t{0}) return;
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    foundry_image& image = all.images[id_];
    image.loaded = 1;
    all.loaded[image.is_library].try_emplace(image.handle, id_);
  });
}

void forget_context(CUcontext context) noexcept {
  if (context == nullptr) return;
  contained("noting the end of a context", [&] {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    for (size_t i = 0; i < all.images.size(); ++i) {
      if (all.contexts[i] != context || all.images[i].loaded == 0) continue;
      all.images[i].loaded = 0;
      all.loaded[0].erase(all.images[i].handle);
    }
  });
}

size_t images(foundry_image* out, size_t capacity) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < all.images.size() && i < capacity; ++i) out[i] = all.images[i];
  return all.images.size();
}

}  // namespace foundry::hook
