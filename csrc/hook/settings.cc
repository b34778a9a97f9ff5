#include "csrc/hook/settings.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "csrc/layout/owner.h"

namespace foundry::hook {
namespace {

std::atomic<bool> g_switched_off{false};
std::atomic<bool> g_forked{false};
std::atomic<bool> g_used{false};

bool is(const char* value, const char* word) { return value != nullptr && std::strcmp(value, word) == 0; }

Settings read_environment() noexcept {
  Settings read;
  if (is(std::getenv("FOUNDRY_HOOK"), "0")) return read;
  const char* mode = std::getenv("FOUNDRY_MODE");
  if (is(mode, "save")) read.mode = Mode::save;
  if (is(mode, "load")) read.mode = Mode::load;
  if (is(mode, "auto")) read.mode = Mode::automatic;
  if (read.mode == Mode::off) return read;

  read.journal = layout::JournalLevel::read(std::getenv("FOUNDRY_JOURNAL"), read.mode != Mode::load);
  const char* log = std::getenv("FOUNDRY_LOG");
  read.log = log != nullptr && *log != '\0' && !is(log, "0") && !is(log, "off");
  return read;
}

}  // namespace

const Settings& settings() noexcept {
  static const Settings read = [] {
    const Settings fresh = read_environment();
    if (fresh.mode != Mode::off)
      pthread_atfork(nullptr, nullptr, [] { g_forked.store(g_used.load(), std::memory_order_relaxed); });
    return fresh;
  }();
  return read;
}

bool working() noexcept {
  return hooking() && !g_switched_off.load(std::memory_order_relaxed) && !g_forked.load(std::memory_order_relaxed);
}

void note_use() noexcept {
  if (!g_used.load(std::memory_order_relaxed)) g_used.store(true, std::memory_order_relaxed);
}

bool forked() noexcept { return g_forked.load(std::memory_order_relaxed); }

void switch_off(std::string reason) noexcept {
  if (g_switched_off.exchange(true)) return;
  try {
    diagnose("libcuda_hook.so switched itself off: " + std::move(reason));
  } catch (...) {  // no memory for the sentence: off all the same
  }
}

void switch_off_after(const char* where, const char* what) noexcept {
  try {
    switch_off(std::string("an internal error in ") + where + " (" + what + ")");
  } catch (...) {
    g_switched_off.store(true);
  }
}

void diagnose(std::string sentence) noexcept {
  const int saved = errno;
  try {
    if (settings().log) {
      const std::string line = "foundry: " + sentence + "\n";
      const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
      static_cast<void>(written);  // nobody to tell
    }
    layout::owner_diagnoses().add(std::move(sentence));
  } catch (...) {  // no memory: the owner's list says so when it is read
  }
  errno = saved;
}

}  // namespace foundry::hook
