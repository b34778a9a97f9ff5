#include "csrc/archive/checker.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "csrc/archive/validate.h"
#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

using Ull = unsigned long long;

constexpr uint32_t kSmallestGranularity = 4096;

}  // namespace

void Checker::fail(const std::string& why) const {
  throw Damage{{ErrorKind::corrupt, 0,
                file_.name() + ", section " + section_info(section_).name + ", record " + std::to_string(record_) +
                    ": " + why + ". The file is damaged; write the archive again."}};
}

void Checker::fail_file(const std::string& why) const {
  throw Damage{{ErrorKind::corrupt, 0, file_.name() + ": " + why + ". The file is damaged; write the archive again."}};
}

void Checker::fail_index(const char* field, uint64_t value, Section target, uint64_t count) const {
  fail(format("%s is %llu, but section %s has %llu records", field, static_cast<Ull>(value), section_info(target).name,
              static_cast<Ull>(count)));
}

void Checker::fail_range(const char* field, uint64_t first, uint64_t count, Section target, uint64_t total) const {
  fail(format("%s says %llu from %llu on, but section %s ends at %llu", field, static_cast<Ull>(count),
              static_cast<Ull>(first), section_info(target).name, static_cast<Ull>(total)));
}

void Checker::text(const char* field, StringRef ref, uint32_t most) const {
  if (ref.bytes > most) fail(format("%s has %u bytes, at most %u are allowed", field, ref.bytes, most));
  if (!file_.has_text(ref)) fail(std::string(field) + " lies outside the strings section");
  const SectionInfo* info = strings_section(file_.kind());
  if (info == nullptr) return;  // no strings: has_text() let only {0, 0} pass
  const std::span<const std::byte> strings = file_.raw_section(info->section);
  auto inside_character = [&strings](uint64_t at) {
    return at < strings.size() && (static_cast<uint8_t>(strings[at]) & 0xc0) == 0x80;
  };
  if (inside_character(ref.offset) || inside_character(uint64_t{ref.offset} + ref.bytes)) {
    fail(std::string(field) + " begins or ends inside a character");
  }
}

void Checker::addresses(const char* field, uint64_t address, uint64_t bytes) const {
  uint64_t end;
  if (!add(address, bytes, &end) || end > kHighestAddress) {
    fail(format("%s is no range of addresses: %llu bytes at 0x%llx", field, static_cast<Ull>(bytes),
                static_cast<Ull>(address)));
  }
}

void Checker::strings() const {
  const SectionInfo* info = strings_section(file_.kind());
  if (info == nullptr) return;
  const std::span<const std::byte> bytes = file_.raw_section(info->section);
  if (!is_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    fail_file(std::string("section ") + info->name + " is not UTF-8 or holds a NUL");
  }
}

void Checker::check_zones(Section section, std::span<const ZoneRecord> zones) {
  for (size_t i = 0; i < zones.size(); ++i) {
    const ZoneRecord& zone = zones[i];
    at(section, i);
    name("name", zone.name);
    require(zone.kind >= 1 && zone.kind <= kLastZoneKind, "the kind of zone is unknown");
    require(zone.granularity >= kSmallestGranularity && (zone.granularity & (zone.granularity - 1)) == 0,
            "the granularity is not a power of two of at least a page");
    require(zone.base % zone.granularity == 0 && zone.size % zone.granularity == 0,
            "base or size is no multiple of the granularity");
    uint64_t end;
    require(zone.size > 0 && zone.base >= kLowestZoneAddress && add(zone.base, zone.size, &end) &&
                end <= kHighestZoneAddress,
            "the window does not lie where zones can be");
    require(zone.used_end >= zone.base && zone.used_end <= end, "used_end lies outside the window");
    for (size_t k = 0; k < i; ++k) {
      require(file_.view(zones[k].name) != file_.view(zone.name), "another zone has the same name");
      require(zones[k].base >= end || zone.base >= zones[k].base + zones[k].size, "it overlaps another zone");
    }
  }
}

Status validate(const File& file) try {
  switch (file.kind()) {
    case FileKind::graphs:
      validate_graphs(file);
      break;
    case FileKind::memory:
      validate_memory(file);
      break;
    case FileKind::journal:
      validate_journal(file);
      break;
    case FileKind::golden:
      validate_golden(file);
      break;
  }
  return success();
} catch (Damage& damage) {
  return std::move(damage.error);
} catch (const std::exception& error) {
  return Error{ErrorKind::out_of_memory, 0, file.name() + " cannot be checked: " + error.what() + "."};
}

Status validate_pair(const File& graphs, const File& memory) try {
  Checker check(graphs);
  const auto tensors = memory.section<Section::tensors>();
  const auto pointers = graphs.section<Section::pointers>();
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (static_cast<PointerClass>(pointers[i].pointer_class) != PointerClass::anchor) continue;
    check.at(Section::pointers, i);
    check.index("target", pointers[i].target, Section::tensors, tensors.size());
    check.require((tensors[pointers[i].target].flags & (kConstant | kMutable)) != 0, "its target is no anchor tensor");
  }
  // LOAD writes through these addresses before every replay.
  const auto zones = memory.section<Section::zones>();
  auto in_zone = [&zones](uint64_t address) {
    return address == 0 || std::any_of(zones.begin(), zones.end(), [address](const ZoneRecord& zone) {
             return address >= zone.base && address + kGeneratorWordBytes <= zone.used_end;
           });
  };
  const auto records = graphs.section<Section::graphs>();
  for (size_t i = 0; i < records.size(); ++i) {
    check.at(Section::graphs, i);
    check.require(in_zone(records[i].generator_seed) && in_zone(records[i].generator_offset),
                  "a word of its generator lies in no zone");
  }
  return success();
} catch (Damage& damage) {
  return std::move(damage.error);
}

}  // namespace foundry::archive
