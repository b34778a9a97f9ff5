#include "csrc/graph/libraries.h"

#include <algorithm>
#include <exception>
#include <string>

#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "csrc/base/trace.h"

namespace foundry::graph {

Libraries::Libraries(const driver::Driver& driver, const GraphView& view, ImageProvider provider,
                     std::span<const uint32_t> order)
    : driver_(driver),
      view_(view),
      provider_(std::move(provider)),
      queue_(order.begin(), order.end()),
      images_(view.images.size()),
      globals_of_(view.images.size()),
      addresses_(std::make_unique<std::atomic<uint64_t>[]>(view.module_globals.size())) {
  for (const uint32_t index : order) images_[index].phase = Phase::queued;
  // The others are as a fresh image has them. There are thousands of those, and finding one takes the driver's lock.
  for (uint32_t i = 0; i < view.module_globals.size(); ++i) {
    const archive::ModuleGlobalRecord& global = view.module_globals[i];
    if (global.content != UINT64_MAX && global.bytes != 0) globals_of_[global.image].push_back(i);
  }
}

void Libraries::unload() {
  const std::lock_guard lock(mutex_);
  for (Image& image : images_) {
    if (image.library != nullptr) driver_.cuLibraryUnload(image.library);
    image = Image{};
  }
}

std::optional<uint32_t> Libraries::load_next() {
  uint32_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_ || queue_.empty()) return std::nullopt;
    index = queue_.front();
    queue_.pop_front();
    images_[index].phase = Phase::loading;
  }
  Image loaded;
  Stats spent;
  Status status = success();
  try {
    status = load(index, loaded, spent);
  } catch (const std::exception& failure) {
    status = Error{ErrorKind::out_of_memory, 0, failure.what()};
  }
  const std::lock_guard lock(mutex_);
  Image& image = images_[index];
  image = std::move(loaded);
  image.phase = status.ok() ? Phase::loaded : Phase::failed;
  if (!status.ok()) {
    const std::string_view source = view_.text(view_.images[index].source);
    image.error = std::move(status).error().within(
        source.empty() ? format("code image %u", index)
                       : format("code image %u (%s)", index, std::string(source).c_str()));
  }
  stats_.load_ms += spent.load_ms;
  stats_.globals_ms += spent.globals_ms;
  stats_.bytes += spent.bytes;
  stats_.images += spent.images;
  changed_.notify_all();
  return index;
}

Status Libraries::load(uint32_t index, Image& image, Stats& spent) {
  Stopwatch watch;
  trace::Span span("load image", view_.text(view_.images[index].source));
  span.bytes(view_.images[index].bytes);
  FOUNDRY_ASSIGN(image.bytes, provider_(index));
  if (image.bytes.data.empty()) return Error{ErrorKind::corrupt, 0, "it is empty"};
  CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* yes = reinterpret_cast<void*>(uintptr_t{1});
  FOUNDRY_CU(driver_, cuLibraryLoadData, &image.library, image.bytes.data.data(), nullptr, nullptr, 0, &option, &yes,
             1);
  spent.load_ms = watch.lap();
  spent.bytes = image.bytes.data.size();
  spent.images = 1;
  FOUNDRY_TRY(restore_globals(index, image.library));
  spent.globals_ms = watch.lap();
  return success();
}

Result<uint64_t> Libraries::locate(uint32_t global, CUlibrary library) {
  if (const uint64_t known = addresses_[global].load(std::memory_order_relaxed); known != 0) return known;
  const archive::ModuleGlobalRecord& record = view_.module_globals[global];
  const std::string symbol(view_.text(record.symbol));
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const CUresult code = driver_.cuLibraryGetGlobal(&address, &bytes, library, symbol.c_str());
  if (code != CUDA_SUCCESS) {
    return driver_.error(code, "cuLibraryGetGlobal").within("module variable " + demangle(symbol));
  }
  if (bytes != record.bytes) {
    return Error{ErrorKind::mismatch, 0,
                 format("module variable %s has %zu bytes here and %llu in the archive", demangle(symbol).c_str(),
                        bytes, static_cast<unsigned long long>(record.bytes))};
  }
  addresses_[global].store(address, std::memory_order_relaxed);
  return address;
}

Status Libraries::restore_globals(uint32_t index, CUlibrary library) {
  if (globals_of_[index].empty()) return success();
  // Not on the legacy stream, which would wait for a capture that runs elsewhere.
  CUstream stream = nullptr;
  FOUNDRY_CU(driver_, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  const auto restore = [&](uint32_t global) -> Status {
    const archive::ModuleGlobalRecord& record = view_.module_globals[global];
    FOUNDRY_ASSIGN(const uint64_t address, locate(global, library));
    FOUNDRY_CU(driver_, cuMemcpyHtoDAsync, address, view_.global_content.data() + record.content, record.bytes, stream);
    return success();
  };
  Status status = success();
  for (const uint32_t global : globals_of_[index]) {
    status = restore(global);
    if (!status.ok()) break;
  }
  const CUresult code = driver_.cuStreamSynchronize(stream);
  if (status.ok() && code != CUDA_SUCCESS) status = driver_.error(code, "cuStreamSynchronize");
  driver_.cuStreamDestroy(stream);
  return status;
}

void Libraries::hurry(std::span<const uint32_t> images) {
  const std::lock_guard lock(mutex_);
  std::stable_partition(queue_.begin(), queue_.end(), [&](uint32_t queued) {
    return std::find(images.begin(), images.end(), queued) != images.end();
  });
}

Result<CUlibrary> Libraries::wait(uint32_t image) {
  std::unique_lock lock(mutex_);
  const Image& wanted = images_[image];
  changed_.wait(lock, [&] {
    return wanted.phase == Phase::unlisted || wanted.phase == Phase::loaded || wanted.phase == Phase::failed ||
           cancelled_;
  });
  if (wanted.phase == Phase::loaded) return wanted.library;
  if (wanted.phase == Phase::failed) return wanted.error;
  if (wanted.phase == Phase::unlisted) {
    return Error{ErrorKind::invalid, 0, format("code image %u belongs to no graph that is restored", image)};
  }
  return Error{ErrorKind::state, 0, "the restore was cancelled"};
}

Result<uint64_t> Libraries::global(uint32_t index) {
  FOUNDRY_ASSIGN(const CUlibrary library, wait(view_.module_globals[index].image));
  return locate(index, library);
}

void Libraries::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

Libraries::Stats Libraries::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace foundry::graph
