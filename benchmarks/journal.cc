// What one entry of the journal costs, level by level: nanoseconds, printed as a table.
//
//   tools/bazelw run //benchmarks:journal -- [ENTRIES]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "csrc/layout/journal.h"
#include "csrc/layout/stacks.h"

namespace {

using foundry::layout::Journal;
using foundry::layout::Stacks;

// As Zones::alloc does it.
void entry(Journal& journal, uint64_t number) {
  foundry_event event{};
  event.stack = journal.stack();
  event.ordinal = journal.next_ordinal();
  event.address = number << 21;
  event.bytes = 2 << 20;
  event.kind = FOUNDRY_EVENT_ALLOC;
  event.thread = foundry::layout::thread_id();
  event.entry_point = "zone_alloc";
  journal.append(event);
}

// `depth` frames between the loop and the entry.
__attribute__((noinline)) void at_depth(Journal& journal, uint64_t number, int depth) {
  if (depth == 0) {
    entry(journal, number);
  } else {
    at_depth(journal, number, depth - 1);
  }
  asm volatile("");  // no tail call
}

double nanoseconds(uint64_t entries, auto&& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < entries; ++i) work(i);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() /
         static_cast<double>(entries);
}

double level(uint64_t entries, int depth, bool record, bool stacks) {
  const auto journal = std::make_unique<Journal>();
  journal->set_recording(record);
  journal->stacks().enable(stacks, false);
  return nanoseconds(entries, [&](uint64_t i) { at_depth(*journal, i, depth); });
}

// Stacks that nobody had before: every one is located and kept.
double fresh_stacks(uint64_t entries, int depth) {
  Stacks stacks;
  uint64_t addresses[Stacks::kDeepest];
  const auto base = reinterpret_cast<uint64_t>(&entry);
  return nanoseconds(entries, [&](uint64_t i) {
    for (int frame = 0; frame < depth; ++frame) addresses[frame] = base + (i + static_cast<uint64_t>(frame)) % 4096;
    addresses[0] = base + i;
    stacks.keep(addresses, static_cast<size_t>(depth), nullptr, 0);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t entries = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200'000;
  if (entries == 0) {
    std::fprintf(stderr, "usage: journal [ENTRIES]\n");
    return 2;
  }
  level(entries, 10, true, true);  // warm
  std::printf("%-8s %8s %8s %8s %14s\n", "frames", "off", "sizes", "stacks", "stacks, new");
  for (const int depth : {10, 30, 60}) {
    const uint64_t fresh = entries < Stacks::kMost ? entries : Stacks::kMost;
    std::printf("%-8d %8.0f %8.0f %8.0f %14.0f\n", depth, level(entries, depth, false, false),
                level(entries, depth, true, false), level(entries, depth, true, true), fresh_stacks(fresh, depth));
  }
  std::printf("ns per entry, %llu entries\n", static_cast<unsigned long long>(entries));
  return 0;
}
