#include "csrc/session/process.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "csrc/base/text.h"
#include "csrc/base/version.h"
#include "csrc/layout/owner.h"

namespace foundry::session {
namespace {

std::atomic<bool> g_forked{false};

// Reads a list whose length may change between asking and reading.
template <class Record, class Read>
std::vector<Record> read_list(Read&& read) {
  std::vector<Record> list;
  size_t count = read(static_cast<Record*>(nullptr), size_t{0});
  while (true) {
    list.resize(count + count / 8 + 16);
    count = read(list.data(), list.size());
    if (count <= list.size()) break;
  }
  list.resize(count);
  return list;
}

// The core as owner: libcuda.so.1 opened by ourselves, no images, a journal on demand only.
void* core_driver_symbol(const char* symbol) {
  // RTLD_LOCAL: our handle must not make driver symbols visible to anybody else.
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : dlsym(library, symbol);
}

const foundry_abi* core_owner() {
  layout::OwnerConfig config;
  config.owner = "core";
  config.build = FOUNDRY_VERSION;
  config.bind = [] { return driver::Driver::open(); };
  config.driver_symbol = core_driver_symbol;
  config.journal = layout::JournalLevel::read(std::getenv("FOUNDRY_JOURNAL"), false);
  return layout::make_owner(config);
}

void (*g_when_ready)(const foundry_abi&) = nullptr;

const foundry_abi* find_hook() {
  auto getter = reinterpret_cast<foundry_abi_getter>(dlsym(RTLD_DEFAULT, FOUNDRY_ABI_SYMBOL));
  return getter == nullptr ? nullptr : getter();
}

}  // namespace

Status abi_status(int code, const foundry_error& error) {
  if (code == 0) return success();
  return Error{static_cast<ErrorKind>(error.kind), error.code, error.text};
}

bool Process::forked() noexcept { return g_forked.load(std::memory_order_relaxed); }

Status Process::usable() {
  if (!forked()) return success();
  return Error{ErrorKind::state, 0,
               "this process is a fork of one that used CUDA, so neither CUDA nor what Foundry restored works in it; "
               "start processes with the method 'spawn', or before CUDA is used"};
}

Result<Process*> Process::get() {
  FOUNDRY_TRY(usable());
  static std::mutex mutex;
  // Never destroyed: threads and tensors may use it until the process has ended.
  static Process* process = nullptr;
  const std::lock_guard lock(mutex);
  if (process != nullptr) return process;

  std::unique_ptr<Process> fresh(new Process);
  const foundry_abi* hook = find_hook();
  if (hook != nullptr) {
    if (hook->version != FOUNDRY_ABI_VERSION || hook->bytes != sizeof(foundry_abi)) {
      return Error{
          ErrorKind::mismatch, 0,
          format("the preloaded libcuda_hook.so speaks ABI %u (%u bytes), this foundry package speaks ABI %u (%zu "
                 "bytes); use the hook of the same wheel (`foundry run` does)",
                 hook->version, hook->bytes, FOUNDRY_ABI_VERSION, sizeof(foundry_abi))};
    }
    FOUNDRY_ASSIGN(fresh->driver_,
                   driver::Driver::bind([hook](const char* symbol) { return hook->driver_symbol(symbol); }));
    fresh->abi_ = hook;
    fresh->hooked_ = true;
  } else {
    FOUNDRY_ASSIGN(fresh->driver_, driver::Driver::open());
    fresh->abi_ = core_owner();
  }
  const CUresult code = fresh->driver_.cuInit(0);
  if (code != CUDA_SUCCESS) return fresh->driver_.error(code, "cuInit");
  pthread_atfork(nullptr, nullptr, [] { g_forked.store(true, std::memory_order_relaxed); });
  process = fresh.release();
  if (g_when_ready != nullptr) g_when_ready(process->abi());
  return process;
}

void Process::when_ready(void (*call)(const foundry_abi&)) { g_when_ready = call; }

Result<CUcontext> Process::context(int device) {
  static std::mutex mutex;
  static std::map<int, CUcontext> contexts;
  const std::lock_guard lock(mutex);
  if (const auto found = contexts.find(device); found != contexts.end()) return found->second;
  CUdevice handle = 0;
  FOUNDRY_CU(driver_, cuDeviceGet, &handle, device);
  CUcontext context = nullptr;
  FOUNDRY_CU(driver_, cuDevicePrimaryCtxRetain, &context, handle);
  contexts.emplace(device, context);
  return context;
}

std::vector<foundry_zone_info> Process::zones() const {
  return read_list<foundry_zone_info>([this](auto* out, size_t n) { return abi_->zones(out, n); });
}

std::vector<foundry_range> Process::ranges(uint32_t slot) const {
  return read_list<foundry_range>([=, this](auto* out, size_t n) { return abi_->ranges(slot, out, n); });
}

std::vector<foundry_expectation> Process::unclaimed(uint32_t slot) const {
  return read_list<foundry_expectation>([=, this](auto* out, size_t n) { return abi_->unclaimed(slot, out, n); });
}

std::vector<foundry_image> Process::images() const {
  return read_list<foundry_image>([this](auto* out, size_t n) { return abi_->images(out, n); });
}

std::vector<foundry_event> Process::events() const {
  return read_list<foundry_event>([this](auto* out, size_t n) { return abi_->events(0, out, n); });
}

std::vector<foundry_stack> Process::stacks() const { return read_list<foundry_stack>(abi_->stacks); }

std::vector<foundry_frame> Process::frames() const { return read_list<foundry_frame>(abi_->frames); }

std::vector<foundry_python_frame> Process::python_frames() const {
  return read_list<foundry_python_frame>(abi_->python_frames);
}

std::vector<foundry_module> Process::modules() const { return read_list<foundry_module>(abi_->modules); }

std::vector<std::string> Process::diagnoses() const {
  const auto text = read_list<char>([this](char* out, size_t n) { return abi_->diagnoses(out, n); });
  std::vector<std::string> lines;
  std::string line;
  for (const char c : text) {
    if (c == '\0') break;
    if (c == '\n') {
      if (!line.empty()) lines.push_back(std::move(line));
      line.clear();
    } else {
      line += c;
    }
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

}  // namespace foundry::session
