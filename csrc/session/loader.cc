#include "csrc/session/loader.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "csrc/archive/images.h"
#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "csrc/base/trace.h"
#include "csrc/session/device_memory.h"
#include "csrc/session/host_ranges.h"

namespace foundry::session {

using archive::Section;

namespace {

std::vector<foundry_range> sorted_by_address(std::vector<foundry_range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const foundry_range& a, const foundry_range& b) { return a.address < b.address; });
  return ranges;
}

}  // namespace

Result<std::unique_ptr<Loader>> Loader::create(std::shared_ptr<const ArchiveData> archive, int device) {
  FOUNDRY_ASSIGN(Process * process, Process::get());
  FOUNDRY_ASSIGN(CUcontext context, process->context(device));
  return std::unique_ptr<Loader>(new Loader(*process, std::move(archive), device, context));
}

Result<std::map<std::string, uint32_t>> Loader::open_zones() {
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  const archive::File& memory = archive_->memory();
  const foundry_abi& abi = process_.abi();
  std::map<std::string, uint32_t> slots;
  const auto zones = memory.section<Section::zones>();
  for (uint32_t index = 0; index < zones.size(); ++index) {
    const archive::ZoneRecord& zone = zones[index];
    const std::string name(memory.view(zone.name));
    uint32_t slot = FOUNDRY_NO_ZONE;
    FOUNDRY_TRY(abi_call([&](foundry_error* error) {
      return abi.zone_open(device_, name.c_str(), zone.kind, zone.base, zone.size, &slot, error);
    }));
    slots_.push_back(slot);
    slots[name] = slot;
    if (zone.kind != FOUNDRY_ZONE_REBUILT) continue;
    std::vector<foundry_expectation> expected;
    for (const archive::AllocationRecord& record : memory.section<Section::allocations>()) {
      if (record.zone == index) expected.push_back({record.address, record.bytes});
    }
    FOUNDRY_TRY(abi_call([&](foundry_error* error) {
      return abi.zone_expect(slot, expected.data(), expected.size(), zone.used_end, error);
    }));
  }
  return slots;
}

std::shared_ptr<graph::Restorer> Loader::restorer() const {
  const std::lock_guard lock(mutex_);
  return restorer_;
}

Status Loader::map() {
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  Stopwatch watch;
  trace::Span span("map");
  const foundry_abi& abi = process_.abi();
  for (const archive::MappedRecord& record : archive_->memory().section<Section::mapped>()) {
    FOUNDRY_TRY(abi_call(
        [&](foundry_error* error) { return abi.zone_map(slots_[record.zone], record.address, record.bytes, error); }));
    mapped_.push_back({record.address, record.bytes});
    stats_.mapped_bytes += record.bytes;
  }
  stats_.milliseconds["map"] = watch.lap();
  span.bytes(stats_.mapped_bytes);
  const std::lock_guard lock(filling_);
  try {
    content_ = std::async(std::launch::async, [this]() -> Result<Filled> {
      trace::name_thread("content");
      const driver::ScopedContext current(process_.driver(), context_);
      FOUNDRY_TRY(current.status());
      const driver::RelaxedCaptureMode relaxed(process_.driver());
      try {
        return fill();
      } catch (const std::bad_alloc&) {
        return Error{ErrorKind::out_of_memory, 0, "no host memory to restore the content of device memory"};
      }
    });
  } catch (const std::system_error& failure) {
    return Error{ErrorKind::out_of_memory, failure.code().value(),
                 format("no thread to restore the content of device memory: %s", failure.what())};
  }
  return success();
}

Status Loader::wait_content() {
  if (filled_.load(std::memory_order_acquire)) return success();
  const std::lock_guard lock(filling_);
  if (!content_.valid()) return content_status_;
  const Result<Filled> filled = content_.get();
  if (!filled.ok()) {
    content_status_ = filled.error();
    return content_status_;
  }
  filled_.store(true, std::memory_order_release);
  const std::lock_guard stats(mutex_);
  stats_.content_bytes = filled.value().bytes;
  stats_.milliseconds["content"] = filled.value().milliseconds;
  return success();
}

Result<Loader::Filled> Loader::fill() {
  Stopwatch watch;
  trace::Span span("content");
  const archive::File& memory = archive_->memory();
  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(process_.driver()));
  // What SAVE stored no content for starts as zeros in every process, not as what the GPU held before.
  for (const archive::MappedRecord& record : memory.section<Section::mapped>()) {
    FOUNDRY_TRY(device.fill(record.address, record.bytes, 0));
  }
  uint64_t bytes = 0;
  FOUNDRY_TRY(
      write_content(device, memory.section<Section::content_blocks>(), memory.raw_section(Section::content), bytes));
  FOUNDRY_TRY(device.wait());
  span.bytes(bytes);
  return Filled{bytes, watch.lap()};
}

Status Loader::refill() {
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  FOUNDRY_TRY(wait_content());
  FOUNDRY_CU(process_.driver(), cuCtxSynchronize);
  FOUNDRY_TRY(fill());
  return success();
}

Result<uint64_t> Loader::module_global(uint32_t index) {
  const std::shared_ptr<graph::Restorer> restorer = this->restorer();
  if (!restorer) return Error{ErrorKind::state, 0, "the archive was closed; its module variables are gone"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  return restorer->module_global(index);
}

Status Loader::claim(uint64_t address, uint64_t bytes) {
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  const foundry_abi& abi = process_.abi();
  uint32_t slot = FOUNDRY_NO_ZONE;
  if (abi.in_zone(address, &slot) == 0) {
    return Error{ErrorKind::invalid, 0,
                 format("%s lies in no zone; nothing can be placed there", hex(address).c_str())};
  }
  const auto zone = std::find(slots_.begin(), slots_.end(), slot);
  if (zone == slots_.end()) {
    return Error{ErrorKind::invalid, 0, format("%s lies in no zone of the archive", hex(address).c_str())};
  }
  const archive::File& memory = archive_->memory();
  const auto index = static_cast<uint32_t>(zone - slots_.begin());
  const uint64_t page = memory.section<Section::zones>()[index].granularity;
  const std::vector<foundry_range> ranges = process_.ranges(slot);
  for (const archive::AllocationRecord& record : memory.section<Section::allocations>()) {
    if (record.zone != index || record.address >= address + bytes || record.address + record.bytes <= address) continue;
    const uint64_t rounded = (record.bytes + page - 1) / page * page;
    // Nobody has it: nobody allocated it, or whoever did has freed it again.
    const bool mapped = std::any_of(ranges.begin(), ranges.end(), [&](const foundry_range& range) {
      return range.state != FOUNDRY_RANGE_RELEASED && range.address < record.address + rounded &&
             range.address + range.mapped_bytes > record.address;
    });
    if (mapped) continue;
    FOUNDRY_TRY(abi_call([&](foundry_error* error) { return abi.zone_map(slot, record.address, rounded, error); }));
    mapped_.push_back({record.address, record.bytes});
  }
  // Every byte must have memory now: SAVE may have recorded less than the tensor claims.
  uint64_t covered = address;
  for (const foundry_range& range : sorted_by_address(process_.ranges(slot))) {
    const uint64_t end = range.address + std::max(range.mapped_bytes, range.bytes);
    if (range.state != FOUNDRY_RANGE_RELEASED && range.address <= covered && end > covered) covered = end;
  }
  if (covered < address + bytes) {
    return Error{ErrorKind::mismatch, 0,
                 format("%s at %s cannot be placed where it was: the archive has no allocation at %s",
                        bytes_text(bytes).c_str(), hex(address).c_str(), hex(covered).c_str())};
  }
  return success();
}

Status Loader::start(std::vector<uint32_t> order, const graph::RestoreTuning& tuning, uint64_t exec_budget) {
  graph::RestoreOptions options;
  options.tuning = tuning;
  options.exec_budget = exec_budget;
  options.context = context_;
  FOUNDRY_CU(process_.driver(), cuDeviceGet, &options.device, device_);
  options.order = std::move(order);
  const graph::GraphView view = archive_->graphs();
  for (const uint32_t graph : options.order) {
    if (graph >= view.graphs.size()) return Error{ErrorKind::invalid, 0, format("the archive has no graph %u", graph)};
  }
  std::sort(mapped_.begin(), mapped_.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  options.held = graph::graphs_with_copies(view, options.order, mapped_);
  const auto provider = [archive = archive_](uint32_t index) -> Result<graph::ImageBytes> {
    const archive::ImageRecord& record = archive->graphs_file().section<Section::images>()[index];
    if (record.bytes == 0) {
      return Error{ErrorKind::corrupt, 0, format("code image %u is needed, but the archive does not hold it", index)};
    }
    FOUNDRY_ASSIGN(archive::PrivateMemory read, archive::read_image(archive->directory(), record.hash, record.bytes));
    auto bytes = std::make_shared<archive::PrivateMemory>(std::move(read));
    // One byte more than the image: PTX is text that ends with a zero, which read_image guarantees.
    return graph::ImageBytes{std::as_const(*bytes).bytes(), bytes};
  };
  FOUNDRY_ASSIGN(std::unique_ptr<graph::Restorer> restorer,
                 graph::Restorer::start(process_.driver(), view, provider, std::move(options)));
  const std::lock_guard lock(mutex_);
  // In a fork its threads do not exist: they could be waited for for ever.
  restorer_ = std::shared_ptr<graph::Restorer>(restorer.release(), [](graph::Restorer* graphs) {
    if (!Process::forked()) delete graphs;
  });
  return success();
}

Status Loader::register_host(const graph::NamedRange& range) {
  const std::shared_ptr<graph::Restorer> restorer = this->restorer();
  if (!restorer) return Error{ErrorKind::state, 0, "the archive was closed; its graphs use no host memory any more"};
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  const graph::GraphView view = archive_->graphs();
  for (uint32_t index = 0; index < view.host_ranges.size(); ++index) {
    const archive::HostRangeRecord& record = view.host_ranges[index];
    if (view.text(record.name) != range.name) continue;
    Result<int64_t> shift = static_cast<int64_t>(range.address - record.address);
    if (range.bytes < record.bytes) {
      shift = Error{ErrorKind::mismatch, 0,
                    format("host memory '%s' has %s here and had %s on SAVE", range.name.c_str(),
                           bytes_text(range.bytes).c_str(), bytes_text(record.bytes).c_str())};
    } else if (Status pinned = check_pinned(process_.driver(), range); !pinned.ok()) {
      shift = std::move(pinned).error();
    }
    restorer->place_host(index, std::move(shift));
  }
  return success();
}

void Loader::settle() {
  if (const std::shared_ptr<graph::Restorer> restorer = this->restorer()) restorer->release();
}

void Loader::cancel() {
  if (Process::forked()) return;
  if (const std::shared_ptr<graph::Restorer> restorer = this->restorer()) restorer->cancel();
  static_cast<void>(wait_content());  // wait() says what became of it
}

Status Loader::wait(uint32_t graph) {
  FOUNDRY_TRY(Process::usable());
  FOUNDRY_TRY(wait_content());
  const std::shared_ptr<graph::Restorer> restorer = this->restorer();
  if (!restorer)
    return Error{ErrorKind::state, 0, "graphs are not being restored: the archive was closed or not started"};
  auto exec = restorer->wait(graph);
  if (!exec.ok()) return exec.error();
  return success();
}

Status Loader::launch(uint32_t graph, CUstream stream) {
  FOUNDRY_TRY(Process::usable());
  const std::shared_ptr<graph::Restorer> restorer = this->restorer();
  if (!restorer) return Error{ErrorKind::state, 0, "the archive was closed; its graphs cannot be replayed any more"};
  // Stream 0 means the null stream of the current context, and a fresh thread has none.
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  return restorer->launch(graph, stream);
}

Status Loader::launch_random(uint32_t graph, CUstream stream, uint64_t seed, uint64_t offset) {
  const auto graphs = archive_->graphs().graphs;
  if (graph >= graphs.size() || (graphs[graph].flags & archive::kGraphUsesGenerator) == 0) {
    return Error{ErrorKind::invalid, 0, format("graph %u draws no random numbers", graph)};
  }
  FOUNDRY_TRY(wait(graph));
  driver::ScopedContext scope(process_.driver(), context_);
  FOUNDRY_TRY(scope.status());
  // From pageable memory: the driver has copied both values when the calls return.
  FOUNDRY_CU(process_.driver(), cuMemcpyHtoDAsync, graphs[graph].generator_seed, &seed, sizeof seed, stream);
  FOUNDRY_CU(process_.driver(), cuMemcpyHtoDAsync, graphs[graph].generator_offset, &offset, sizeof offset, stream);
  return launch(graph, stream);
}

Status Loader::pin() {
  const foundry_abi& abi = process_.abi();
  for (const TensorInfo& tensor : read_tensors(archive_->memory())) {
    if ((tensor.flags & (archive::kConstant | archive::kMutable)) == 0 || tensor.bytes == 0) continue;
    if (abi.in_zone(tensor.storage_address, nullptr) == 0) continue;
    FOUNDRY_TRY(abi_call(
        [&](foundry_error* error) { return abi.pin(tensor.storage_address, tensor.storage_bytes, 1, error); }));
    pinned_.emplace_back(tensor.storage_address, tensor.storage_bytes);
  }
  return success();
}

LoadStats Loader::stats() const {
  LoadStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats = stats_;
  }
  const std::shared_ptr<graph::Restorer> restorer = this->restorer();
  if (!restorer) return stats;
  const graph::RestoreStats restore = restorer->stats();
  stats.images = restore.images;
  stats.functions = restore.functions;
  stats.nodes = restore.nodes;
  stats.exec_device_bytes = restore.exec_device_bytes;
  stats.exec_host_bytes = restore.exec_host_bytes;
  stats.execs = restore.execs;
  stats.evicted = restore.evicted;
  stats.rebuilt = restore.rebuilt;
  stats.milliseconds["images"] = restore.images_ms;
  stats.milliseconds["globals"] = restore.globals_ms;
  stats.milliseconds["kernels"] = restore.kernels_ms;
  stats.milliseconds["build"] = restore.build_ms;
  stats.milliseconds["instantiate"] = restore.instantiate_ms;
  stats.milliseconds["images system"] = restore.images_system_ms;
  stats.milliseconds["graphs system"] = restore.graphs_system_ms;
  stats.milliseconds["images end"] = restore.images_end_ms;
  stats.milliseconds["build end"] = restore.build_end_ms;
  stats.milliseconds["first ready"] = restore.first_ready_ms;
  stats.milliseconds["restore"] = restore.total_ms;
  return stats;
}

void Loader::close() {
  if (Process::forked()) {
    // The thread that fills memory is the parent's: its future would wait for it for ever when it is destroyed.
    static_cast<void>(new std::future(std::move(content_)));
    return;
  }
  static_cast<void>(wait_content());  // nobody asks for it any more
  std::shared_ptr<graph::Restorer> restorer;
  {
    const std::lock_guard lock(mutex_);
    restorer = std::move(restorer_);
  }
  driver::ScopedContext scope(process_.driver(), context_);
  if (restorer) {
    restorer->cancel();
    process_.driver().cuCtxSynchronize();  // no graph may run while it is destroyed
    restorer.reset();
  }
  const foundry_abi& abi = process_.abi();
  foundry_error error{};
  for (const auto& [address, bytes] : std::exchange(pinned_, {})) abi.pin(address, bytes, 0, &error);
  for (const graph::MappedRange& range : std::exchange(mapped_, {})) abi.zone_unmap(range.address, &error);
  const auto zones = process_.zones();
  for (const uint32_t slot : std::exchange(slots_, {})) {
    const auto zone = std::find_if(zones.begin(), zones.end(), [&](const auto& z) { return z.slot == slot; });
    // Pinned memory of an earlier LOAD may still be in use without being anybody's allocation.
    if (zone != zones.end() && zone->live_bytes == 0 && zone->mapped_bytes == 0) abi.zone_close(slot, &error);
  }
}

}  // namespace foundry::session
