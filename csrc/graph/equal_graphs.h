// LOAD: graphs that are the same in every respect, so that one exec serves them all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/graph/tables.h"

namespace foundry::graph {

// By graph of the view: the first one of `order` that launches the same kernels with the same arguments, attributes and
// edges, and draws random numbers alike; itself if there is none before it. Graphs with nodes of other kinds, which may
// own something, and graphs that are not in `order` stand for themselves.
std::vector<uint32_t> first_equals(const GraphView& view, std::span<const uint32_t> order);

}  // namespace foundry::graph
