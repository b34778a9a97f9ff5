// What the end of a context takes with it; each function stands beside the objects that it ends.
#pragma once

namespace foundry::sim {

struct Context;

void release_executables_of(Context& context);
void release_streams_of(Context& context);
void release_events_of(Context& context);
void release_modules_of(Context& context);
void release_memory_of(Context& context);

}  // namespace foundry::sim
