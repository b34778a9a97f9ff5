// Values of PointerRecord::param that name an operand of a node instead of a kernel parameter.
#pragma once

#include <cstdint>

namespace foundry::graph {

inline constexpr uint32_t kSourceOperand = 0xfffffff0u;
inline constexpr uint32_t kDestinationOperand = 0xfffffff1u;
inline constexpr uint32_t kAccessWindowOperand = 0xfffffff2u;

}  // namespace foundry::graph
