#include "csrc/graph/address_classes.h"

#include <algorithm>

namespace foundry::graph {

using archive::PointerClass;

namespace {

// The first pages are never mapped; the last bit of user space decides the upper end (five-level page tables).
constexpr uint64_t kLowestAddress = 0x10000;
constexpr uint64_t kHighestAddress = UINT64_C(1) << 57;

}  // namespace

AddressClasses::AddressClasses(const driver::Driver& driver, const AuditInput& input)
    : driver_(driver), memory_(*input.memory) {
  for (uint32_t i = 0; i < input.graphs.module_globals.size(); ++i) {
    globals_.push_back({input.graphs.module_globals[i].address, input.graphs.module_globals[i].bytes, i});
  }
  for (uint32_t i = 0; i < input.host_ranges.size(); ++i) {
    host_.push_back({input.host_ranges[i].address, input.host_ranges[i].bytes, i});
  }
  for (uint32_t i = 0; i < input.relocatable_ranges.size(); ++i) {
    relocatable_.push_back({input.relocatable_ranges[i].address, input.relocatable_ranges[i].bytes, i});
  }
  sort(globals_);
  sort(host_);
  sort(relocatable_);
}

void AddressClasses::sort(Intervals& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.address != b.address ? a.address < b.address : a.index < b.index;
  });
}

const AddressClasses::Interval* AddressClasses::find(const Intervals& intervals, uint64_t address) {
  const auto above =
      std::upper_bound(intervals.begin(), intervals.end(), address,
                       [](uint64_t value, const Interval& interval) { return value < interval.address; });
  if (above == intervals.begin()) return nullptr;
  const Interval& candidate = *(above - 1);
  return address - candidate.address < candidate.bytes ? &candidate : nullptr;
}

Result<const AddressClass*> AddressClasses::classify(uint64_t word) {
  if (word < kLowestAddress || word >= kHighestAddress) return nullptr;
  auto known = known_.find(word);
  if (known == known_.end()) {
    std::optional<AddressClass> found;
    // A registered range says what it is even where it lies inside a zone.
    if (const Interval* range = find(relocatable_, word)) {
      found = AddressClass{PointerClass::relocatable, range->index, kNone, std::nullopt};
    } else if (memory_.near_zones(word) && (memory_.zone_of(word) != kNone || memory_.range_of(word) != kNone)) {
      found = in_zone(word);
    } else {
      FOUNDRY_ASSIGN(found, outside(word));
    }
    known = known_.emplace(word, found).first;
  }
  return known->second ? &*known->second : nullptr;
}

AddressClass AddressClasses::in_zone(uint64_t address) const {
  AddressClass found;
  found.range = memory_.range_of(address);
  if (found.range == kNone) {
    // Behind everything the zone has handed out there never was memory: a replay that followed such a word would have
    // faulted while saving.
    const uint32_t zone = memory_.zone_of(address);
    if (zone != kNone && address >= memory_.zones()[zone].used_end) {
      found.pointer_class = PointerClass::padding;
      return found;
    }
  }
  const uint32_t state = found.range == kNone ? 0 : memory_.ranges()[found.range].state;
  if (state != FOUNDRY_RANGE_LIVE && state != FOUNDRY_RANGE_MATERIALIZED) {
    found.finding = FindingKind::dangling;
    return found;
  }
  if (memory_.is_materialized(found.range)) {
    found.pointer_class = PointerClass::materialized;
    return found;
  }
  if (const uint32_t anchor = memory_.anchor_of(address); anchor != kNone) {
    found.pointer_class = PointerClass::anchor;
    found.target = memory_.anchors()[anchor].index;
    return found;
  }
  found.pointer_class = PointerClass::rebuilt;
  found.finding = FindingKind::unanchored;
  return found;
}

Result<std::optional<AddressClass>> AddressClasses::outside(uint64_t address) {
  if (const Interval* global = find(globals_, address)) {
    return std::optional(AddressClass{PointerClass::module_global, global->index, kNone, std::nullopt});
  }
  if (const Interval* host = find(host_, address)) {
    return std::optional(AddressClass{PointerClass::host, host->index, kNone, std::nullopt});
  }
  return ask_driver(address);
}

Result<std::optional<AddressClass>> AddressClasses::ask_driver(uint64_t address) {
  unsigned int type = 0;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* into = &type;
  ++asked_;
  const CUresult code = driver_.cuPointerGetAttributes(1, &attribute, &into, address);
  if (code == CUDA_ERROR_INVALID_VALUE || (code == CUDA_SUCCESS && type == 0)) return std::optional<AddressClass>();
  if (code != CUDA_SUCCESS) return driver_.error(code, "cuPointerGetAttributes");
  AddressClass found;
  found.pointer_class = type == CU_MEMORYTYPE_HOST ? PointerClass::host : PointerClass::dangling;
  found.finding = type == CU_MEMORYTYPE_HOST ? FindingKind::pinned_host : FindingKind::unknown_device;
  return std::optional(found);
}

}  // namespace foundry::graph
