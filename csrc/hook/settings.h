// What this process asked of the hook, and whether the hook still works: environment, switching off, diagnoses.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "csrc/layout/journal_level.h"

namespace foundry::hook {

enum class Mode : uint8_t { off, save, load, automatic };

struct Settings {
  Mode mode = Mode::off;
  layout::JournalLevel journal;
  bool log = false;  // diagnoses are printed to standard error as well
};

// FOUNDRY_MODE=save|load|auto (anything else is off), FOUNDRY_HOOK=0 (off for this process), FOUNDRY_JOURNAL
// (journal_level.h; default: sizes on SAVE, off on LOAD), FOUNDRY_LOG (set and not "0" or "off": print diagnoses). Read
// once, at the first call; reads the environment and nothing else.
const Settings& settings() noexcept;

// Lookups are answered with ours: from the start to the end of the process, unless the mode is off.
inline bool hooking() noexcept { return settings().mode != Mode::off; }
// The hook does more than pass through: not switched off, and not forked().
bool working() noexcept;
// This is the child of a process that had called the driver when it forked: CUDA does not work here, and the hook's
// state is the parent's. A child that is forked before (as engines fork theirs) is a process like any other. Zone
// memory is still freed and described after switch_off(), not here.
bool forked() noexcept;
// The driver is called.
void note_use() noexcept;

// From now on everything passes through; the reason is recorded. The application goes on as if Foundry were absent.
void switch_off(std::string reason) noexcept;
void switch_off_after(const char* where, const char* what) noexcept;
// Records a sentence that `foundry` shows later (and prints it if FOUNDRY_LOG says so).
void diagnose(std::string sentence) noexcept;

// Runs `body`, letting no exception out: one switches the hook off, and `otherwise` is the result. Thread cancellation
// is put off meanwhile: it unwinds like an exception.
template <class Result, class Body>
Result contained(const char* where, Result otherwise, Body&& body) noexcept {
  int cancellation = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
  try {
    otherwise = body();
  } catch (const std::exception& error) {
    switch_off_after(where, error.what());
  } catch (...) {
    switch_off_after(where, "unknown exception");
  }
  pthread_setcancelstate(cancellation, nullptr);
  return otherwise;
}

template <class Body>
void contained(const char* where, Body&& body) noexcept {
  contained(where, 0, [&] {
    std::forward<Body>(body)();
    return 0;
  });
}

}  // namespace foundry::hook
