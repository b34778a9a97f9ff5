// Events of restored graphs, handed to the program.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/graph/restore.h"

namespace foundry::session {

// Name of each event that graphs record or wait for -> these graphs. Graphs that were left out do not count.
std::map<std::string, std::vector<uint32_t>> named_events(const graph::GraphView& view);

// One event. It, and with it the graphs that use it, live as long as this object. Thread-safe; streams belong to
// `context`, and 0 is its null stream.
class Event {
 public:
  Event(const driver::Driver& driver, CUcontext context, std::shared_ptr<graph::Restorer> graphs, CUevent event)
      : driver_(&driver), context_(context), graphs_(std::move(graphs)), event_(event) {}

  CUevent handle() const { return event_; }
  // While the stream captures, these become nodes of the graph, as they were in the restored ones.
  Status record(CUstream stream) const;
  Status wait(CUstream stream) const;
  Status synchronize() const;
  // Whether everything before the latest record is done.
  Result<bool> query() const;

 private:
  // Whether the stream captures.
  Result<bool> captures(CUstream stream) const;

  const driver::Driver* driver_;
  CUcontext context_;
  std::shared_ptr<graph::Restorer> graphs_;
  CUevent event_;
};

}  // namespace foundry::session
