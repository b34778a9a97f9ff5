// Who made allocations of this process, as its journal has it.
#pragma once

#include <memory>
#include <string>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/graph/audit.h"
#include "csrc/session/journal.h"
#include "csrc/session/process.h"

namespace foundry::session {

// Reads the journal when it is asked for the first time. Without stacks in it every answer is empty. Not thread-safe.
class AllocationOrigins : public graph::Origins {
 public:
  explicit AllocationOrigins(const Process& process) : process_(process) {}

  std::string of(const foundry_range& allocation) const override;
  // The last allocation or registration of host memory that covers the address.
  std::string of_host(uint64_t address) const override;

 private:
  const JournalView& journal() const;

  const Process& process_;
  mutable std::unique_ptr<JournalTables> tables_;
  mutable JournalView view_;
  mutable boost::unordered_flat_map<uint64_t, uint32_t> stacks_;  // by ordinal of the allocation
};

// The innermost frames of a stack (JournalRecord::stack), those of Foundry and the driver left out: Python's first.
std::string stack_text(const JournalView& journal, uint32_t stack);

}  // namespace foundry::session
