// What an address means: the pointer audit's view of one 64-bit word, remembered per value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/graph/audit.h"

namespace foundry::graph {

struct AddressClass {
  archive::PointerClass pointer_class = archive::PointerClass::dangling;
  uint32_t target = kNone;
  uint32_t range = kNone;              // of the memory map, for addresses in zones
  std::optional<FindingKind> finding;  // what is wrong with it
};

class AddressClasses {
 public:
  AddressClasses(const driver::Driver& driver, const AuditInput& input);

  // Nothing for a word that is no address. The result stays valid until the next call.
  Result<const AddressClass*> classify(uint64_t word);
  uint64_t asked() const { return asked_; }

 private:
  struct Interval {
    uint64_t address, bytes;
    uint32_t index;
  };
  using Intervals = std::vector<Interval>;
  static const Interval* find(const Intervals& intervals, uint64_t address);
  static void sort(Intervals& intervals);

  AddressClass in_zone(uint64_t address) const;
  Result<std::optional<AddressClass>> outside(uint64_t address);
  Result<std::optional<AddressClass>> ask_driver(uint64_t address);

  const driver::Driver& driver_;
  const MemoryMap& memory_;
  Intervals globals_, host_, relocatable_;
  boost::unordered_flat_map<uint64_t, std::optional<AddressClass>> known_;
  uint64_t asked_ = 0;
};

}  // namespace foundry::graph
