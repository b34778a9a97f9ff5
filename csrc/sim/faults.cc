// Faults on demand and call counters.
#include "csrc/sim/faults.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "csrc/sim/extension.h"

namespace foundry::sim {
namespace {

struct Rule {
  std::string name;
  long first = 0, last = 0;  // counted from 1
  CUresult error = CUDA_SUCCESS;
  int delay_ms = 0;
  long seen = 0;
};

struct Faults {
  std::mutex mutex;
  std::vector<Rule> rules;
  std::size_t largest_allocation = SIZE_MAX;
  std::array<std::atomic<std::uint64_t>, static_cast<int>(Fn::kCount) * 2> calls{};
  std::atomic<bool> any{false};
};

bool parse(const std::string& text, std::vector<Rule>* rules, std::size_t* largest);

Faults& faults() {
  static Faults* instance = [] {
    auto* made = new Faults;
    if (const char* spec = std::getenv("FOUNDRY_SIM_FAULT")) {
      std::size_t largest = SIZE_MAX;
      std::vector<Rule> rules;
      if (parse(spec, &rules, &largest)) {
        made->rules = std::move(rules);
        made->largest_allocation = largest;
        made->any = true;
      } else {
        note("FOUNDRY_SIM_FAULT is not understood and has no effect: %s", spec);
      }
    }
    return made;
  }();
  return *instance;
}

bool parse_error(const std::string& text, CUresult* error) {
  char* end = nullptr;
  long number = std::strtol(text.c_str(), &end, 10);
  if (end != text.c_str() && *end == 0) {
    *error = static_cast<CUresult>(number);
    return number > 0;
  }
#define E(name, description) \
  if (text == #name) {       \
    *error = name;           \
    return true;             \
  }
#include "csrc/sim/errors.inc"
#undef E
  return false;
}

bool parse_rule(const std::string& text, std::vector<Rule>* rules, std::size_t* largest) {
  char* end = nullptr;
  if (text.rfind("alloc>", 0) == 0) {
    *largest = std::strtoull(text.c_str() + 6, &end, 10);
    return end != text.c_str() + 6 && *end == 0;
  }
  std::size_t first_colon = text.find(':'), second_colon = text.find(':', first_colon + 1);
  if (first_colon == std::string::npos || second_colon == std::string::npos) return false;
  Rule rule;
  rule.name = text.substr(0, first_colon);
  std::string which = text.substr(first_colon + 1, second_colon - first_colon - 1);
  std::string what = text.substr(second_colon + 1);
  if (which == "*") {
    rule.first = 1;
    rule.last = INT64_MAX;
  } else {
    rule.first = rule.last = std::strtol(which.c_str(), &end, 10);
    if (end == which.c_str() || rule.first < 1) return false;
    if (*end == '+') {
      rule.last = INT64_MAX;
      ++end;
    }
    if (*end != 0) return false;
  }
  if (what.rfind("delay=", 0) == 0) {
    rule.delay_ms = static_cast<int>(std::strtol(what.c_str() + 6, &end, 10));
    if (*end != 0 || rule.delay_ms < 0) return false;
  } else if (!parse_error(what, &rule.error)) {
    return false;
  }
  bool known = false;
  for (int i = 0; i < static_cast<int>(Fn::kCount); ++i) {
    const FnInfo& f = info(static_cast<Fn>(i));
    known |= rule.name == f.base || rule.name == f.symbol ||
             (f.suffix != nullptr && rule.name == std::string(f.symbol) + "_" + f.suffix);
  }
  if (!known) return false;
  rules->push_back(std::move(rule));
  return true;
}

bool parse(const std::string& text, std::vector<Rule>* rules, std::size_t* largest) {
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t end = std::min(text.find(';', at), text.size());
    if (end > at && !parse_rule(text.substr(at, end - at), rules, largest)) return false;
    at = end + 1;
  }
  return true;
}

bool names(const std::string& name, const FnInfo& f, bool per_thread) {
  if (name == f.base) return true;
  if (!per_thread) return name == f.symbol;
  return name.size() == std::strlen(f.symbol) + 5 && name.rfind(f.symbol, 0) == 0 &&
         name.compare(name.size() - 4, 4, f.suffix) == 0;
}

}  // namespace

Injected count_call(Fn fn, bool per_thread_default) {
  Faults& state = faults();
  state.calls[static_cast<int>(fn) * 2 + per_thread_default].fetch_add(1, std::memory_order_relaxed);
  Injected injected;
  if (!state.any) return injected;
  std::lock_guard lock(state.mutex);
  for (Rule& rule : state.rules) {
    if (!names(rule.name, info(fn), per_thread_default)) continue;
    ++rule.seen;
    if (rule.seen < rule.first || rule.seen > rule.last) continue;
    if (rule.error != CUDA_SUCCESS && injected.error == CUDA_SUCCESS) injected.error = rule.error;
    injected.delay_ms += rule.delay_ms;
  }
  return injected;
}

bool allocation_refused(std::size_t bytes) {
  Faults& state = faults();
  if (!state.any) return false;
  std::lock_guard lock(state.mutex);
  return bytes > state.largest_allocation;
}

bool set_faults(const char* spec) {
  Faults& state = faults();
  std::vector<Rule> rules;
  std::size_t largest = SIZE_MAX;
  bool ok = spec == nullptr || parse(spec, &rules, &largest);
  std::lock_guard lock(state.mutex);
  state.rules = ok ? std::move(rules) : std::vector<Rule>();
  state.largest_allocation = ok ? largest : SIZE_MAX;
  state.any = !state.rules.empty() || state.largest_allocation != SIZE_MAX;
  return ok;
}

}  // namespace foundry::sim

using namespace foundry::sim;

extern "C" __attribute__((visibility("default"))) int foundry_sim_set_faults(const char* spec) {
  return set_faults(spec) ? 0 : -1;
}

extern "C" __attribute__((visibility("default"))) std::uint64_t foundry_sim_calls(const char* name) {
  if (name == nullptr) return UINT64_MAX;
  std::uint64_t total = 0;
  bool known = false;
  for (int i = 0; i < static_cast<int>(Fn::kCount) * 2; ++i) {
    const FnInfo& f = info(static_cast<Fn>(i / 2));
    if ((i % 2 == 1 && f.suffix == nullptr) || !names(name, f, i % 2 == 1)) continue;
    known = true;
    total += faults().calls[i].load(std::memory_order_relaxed);
  }
  return known ? total : UINT64_MAX;
}

extern "C" __attribute__((visibility("default"))) void foundry_sim_calls_clear(void) {
  for (auto& count : faults().calls) count.store(0, std::memory_order_relaxed);
}
