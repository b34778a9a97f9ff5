// Counts of live objects for tests.
#include <cstring>

#include "csrc/sim/event.h"
#include "csrc/sim/exec.h"
#include "csrc/sim/extension.h"
#include "csrc/sim/library.h"
#include "csrc/sim/pool.h"
#include "csrc/sim/reservation.h"

using namespace foundry::sim;

static std::uint64_t count_ranges(MemoryKind kind) {
  std::uint64_t count = 0;
  for (const auto& [base, range] : ranges()) count += range.kind == kind;
  return count;
}

static std::uint64_t count_contexts() {
  std::uint64_t count = 0;
  for (const auto& [value, context] : contexts().all()) count += context->alive;
  return count;
}

extern "C" __attribute__((visibility("default"))) std::uint64_t foundry_sim_live(const char* kind) {
  if (kind == nullptr) return UINT64_MAX;
  std::lock_guard lock(driver_mutex());
  auto is = [&](const char* word) { return std::strcmp(kind, word) == 0; };
  if (is("context")) return count_contexts();
  if (is("module")) return modules().size();
  if (is("library")) return libraries().size();
  if (is("kernel")) return kernels().size();
  if (is("function")) return functions().size();
  if (is("stream")) return streams().size();
  if (is("event")) return events().size();
  if (is("graph")) return graphs().size();
  if (is("node")) return nodes().size();
  if (is("exec")) return execs().size();
  if (is("pool")) return pools().size();
  if (is("physical")) return physicals().size();
  if (is("reservation")) return reservations().size();
  if (is("mapping")) return count_ranges(MemoryKind::kMapping);
  if (is("device")) return count_ranges(MemoryKind::kDevice);
  if (is("managed")) return count_ranges(MemoryKind::kManaged);
  if (is("pooled")) return count_ranges(MemoryKind::kPooled);
  if (is("host")) return count_ranges(MemoryKind::kHost);
  if (is("registered")) return count_ranges(MemoryKind::kRegistered);
  if (is("global")) return count_ranges(MemoryKind::kGlobal);
  if (is("graph_memory")) return count_ranges(MemoryKind::kGraph);
  return UINT64_MAX;
}
