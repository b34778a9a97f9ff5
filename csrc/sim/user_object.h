// Objects of the client that graphs keep alive.
#pragma once

#include "csrc/sim/graph.h"

namespace foundry::sim {

// The client's destructor runs when the last reference, of the client or of a graph, is gone.
struct UserObject {
  void* pointer = nullptr;
  CUhostFn destroy = nullptr;
  unsigned references = 0;  // the client's
  ~UserObject();
};

}  // namespace foundry::sim
