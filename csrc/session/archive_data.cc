// Opening an archive: everything is checked here, before anything touches a device.
#include <algorithm>
#include <set>

#include "csrc/archive/images.h"
#include "csrc/archive/validate.h"
#include "csrc/base/text.h"
#include "csrc/base/trace.h"
#include "csrc/session/loader.h"

namespace foundry::session {

using archive::Section;

Result<archive::File> open_listed(int directory, const std::string& name, archive::FileKind kind,
                                  const std::vector<archive::FileDescription>& inventory) {
  const auto listed = std::find_if(inventory.begin(), inventory.end(),
                                   [&](const archive::FileDescription& file) { return file.name == name; });
  if (listed == inventory.end()) {
    return Error{ErrorKind::corrupt, 0, format("foundry.json lists no %s; the archive is incomplete", name.c_str())};
  }
  trace::Span span("read and check", name);
  span.bytes(listed->bytes);
  archive::ReadOptions options;
  options.identity = listed->hash;
  FOUNDRY_ASSIGN(archive::File file, archive::File::open(directory, name, kind, options));
  if (file.bytes() != listed->bytes) {
    return Error{ErrorKind::corrupt, 0,
                 format("%s has %llu bytes, foundry.json lists %llu", name.c_str(),
                        static_cast<unsigned long long>(file.bytes()), static_cast<unsigned long long>(listed->bytes))};
  }
  FOUNDRY_TRY(archive::validate(file));
  return file;
}

Result<std::shared_ptr<ArchiveData>> ArchiveData::open(const std::string& path, uint32_t rank,
                                                       const std::vector<archive::FileDescription>& inventory) {
  FOUNDRY_ASSIGN(archive::FileDescriptor directory, archive::open_directory(path));
  const std::string folder = format("rank_%u", rank);
  FOUNDRY_ASSIGN(archive::File graphs,
                 open_listed(directory.get(), folder + "/graphs.fdry", archive::FileKind::graphs, inventory));
  FOUNDRY_ASSIGN(archive::File memory,
                 open_listed(directory.get(), folder + "/memory.fdry", archive::FileKind::memory, inventory));
  FOUNDRY_TRY(archive::validate_pair(graphs, memory));
  return std::shared_ptr<ArchiveData>(
      new ArchiveData(path, std::move(directory), std::move(graphs), std::move(memory)));
}

std::vector<ZoneSummary> ArchiveData::zones() const {
  std::vector<ZoneSummary> zones;
  for (const archive::ZoneRecord& record : memory_.section<Section::zones>()) {
    ZoneSummary zone;
    zone.name = memory_.view(record.name);
    zone.kind = record.kind;
    zone.base = record.base;
    zone.size = record.size;
    zone.used_end = record.used_end;
    zones.push_back(std::move(zone));
  }
  for (const archive::AllocationRecord& record : memory_.section<Section::allocations>()) {
    zones[record.zone].allocations += 1;
    zones[record.zone].allocated_bytes += record.bytes;
  }
  for (const archive::MappedRecord& record : memory_.section<Section::mapped>()) {
    zones[record.zone].mapped_bytes += record.bytes;
  }
  for (const archive::ContentRecord& record : memory_.section<Section::content_blocks>()) {
    for (ZoneSummary& zone : zones) {
      if (record.address >= zone.base && record.address - zone.base < zone.size) zone.content_bytes += record.bytes;
    }
  }
  return zones;
}

Status ArchiveData::verify_images() const {
  for (const archive::ImageRecord& record : graphs_.section<Section::images>()) {
    if (record.bytes == 0) continue;  // only graphs that were left out use it
    const auto image = archive::read_image(directory_.get(), record.hash, record.bytes);
    if (!image.ok()) return image.error();
  }
  return success();
}

}  // namespace foundry::session
