// What the simulated driver exports besides the driver API: logs, counters and faults for tests. Found with dlsym.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Writes the process-wide log (one message a line, oldest first) with a final NUL into `buffer` of `size` bytes, cut
// off where it does not fit; returns the bytes that all of it needs, NUL included.
size_t foundry_sim_log_text(char* buffer, size_t size);
void foundry_sim_log_clear(void);

// Calls so far, refused and failed ones included. An exported symbol ("cuMemAlloc_v2", "cuMemcpyAsync_ptsz") counts
// that spelling, a base name ("cuMemAlloc") all of its spellings. UINT64_MAX for a name that is not in the table.
uint64_t foundry_sim_calls(const char* name);
void foundry_sim_calls_clear(void);

// Live objects of one kind: "context", "module", "library", "kernel", "function", "stream", "event", "graph", "node",
// "exec", "pool", "physical", "reservation", "mapping", "device", "managed", "pooled", "host", "registered", "global",
// "graph_memory". UINT64_MAX for another word.
uint64_t foundry_sim_live(const char* kind);

// Replaces the faults by those of `spec`, as FOUNDRY_SIM_FAULT does at start (see faults.h); calls are counted from now
// on. Returns 0, or -1 when the text is not understood: then there are no faults.
int foundry_sim_set_faults(const char* spec);

// Replaces the traps ("edge-data,exec-update-attrs", "" for none), as FOUNDRY_SIM_TRAPS does at start. 0 or -1.
int foundry_sim_set_traps(const char* spec);

// The number of exported driver symbols, and the i-th of them (NULL past the end).
size_t foundry_sim_symbol_count(void);
const char* foundry_sim_symbol(size_t index);

#ifdef __cplusplus
}
#endif
