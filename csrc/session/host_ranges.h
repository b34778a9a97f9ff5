// Pinned memory of the program that graphs use: registered by name on SAVE and again on LOAD.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/driver/driver.h"
#include "csrc/graph/snapshot.h"

namespace foundry::session {

// Whether graphs can use [range.address, range.address + range.bytes): `invalid` unless it is pinned memory that the
// device sees at the same address. A context of the device must be current.
Status check_pinned(const driver::Driver& driver, const graph::NamedRange& range);

// check_pinned, and for SAVE: a name of its own, no overlap with the ranges that are `known`.
Status check_new_range(const driver::Driver& driver, const std::vector<graph::NamedRange>& known,
                       const graph::NamedRange& range);

}  // namespace foundry::session
