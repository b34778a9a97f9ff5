// The files of a SAVE: records of graphs, memory and journal into their containers.
#include <algorithm>

#include "csrc/archive/content.h"
#include "csrc/archive/writer.h"
#include "csrc/session/device_memory.h"
#include "csrc/session/journal.h"
#include "csrc/session/records.h"
#include "csrc/session/saver.h"

namespace foundry::session {

using archive::Section;

namespace {

std::vector<archive::ZoneRecord> zone_records(const MemoryState& memory, archive::StringTable& strings) {
  std::vector<archive::ZoneRecord> records;
  for (const foundry_zone_info& zone : memory.map.zones()) records.push_back(zone_record(zone, strings));
  return records;
}

template <Section S, class Column>
Status put_column(archive::FileWriter& file, const Column& column) {
  if constexpr (std::is_same_v<Column, archive::StringTable>) {
    return success();  // the strings section is the writer's own
  } else {
    return file.put<S>(column);
  }
}

// Blocks of zeros stay on the device. Equal ones do not: they are compared byte by byte.
Status add_content(archive::ContentWriter& content, DeviceMemory& device, MemoryScanner& scanner, uint64_t address,
                   uint64_t bytes) {
  const auto read = [&](uint64_t from, uint64_t count) {
    return device.read(from, count,
                       [&](uint64_t at, std::span<const std::byte> piece) { return content.add(at, piece); });
  };
  constexpr uint64_t kBlock = archive::kContentBlockBytes;
  static_assert(kBlock == device::kBlockBytes);
  if (!scanner.on_device() || bytes < MemoryScanner::kLeastBytes) return read(address, bytes);
  // Content is stored in blocks at multiples of their size.
  const uint64_t first = std::min((kBlock - address % kBlock) % kBlock, bytes);
  FOUNDRY_TRY(read(address, first));
  FOUNDRY_ASSIGN(const std::vector<device::BlockSummary> blocks, scanner.summaries(address + first, bytes - first));
  uint64_t from = address + first;  // what is to be read begins here
  uint64_t at = from;
  for (const device::BlockSummary& block : blocks) {
    if (block.is_zero != 0) {
      FOUNDRY_TRY(read(from, at - from));
      content.add_zeros(block.bytes);
      from = at + block.bytes;
    }
    at += block.bytes;
  }
  return read(from, at - from);
}

}  // namespace

Status Saver::write_graphs(int directory, const std::string& name, bool compact, SaveReport& report) {
  graph::GraphTables& tables = snapshotter_.tables();
  for (const auto& [graph, outputs] : outputs_) {
    tables.graphs[graph].outputs = tables.graphs_strings.add(outputs.tree);
  }
  FOUNDRY_ASSIGN(archive::FileWriter file, archive::FileWriter::create(directory, name, archive::FileKind::graphs));
  file.set_compact(compact);
  file.strings() = tables.graphs_strings;
#define FOUNDRY_WRITE_graphs(name) FOUNDRY_TRY(put_column<Section::name>(file, tables.name));
#define FOUNDRY_WRITE_memory(name)
#define FOUNDRY_WRITE_journal(name)
#define FOUNDRY_WRITE_golden(name)
#define FOUNDRY_WRITE(name, number, version, kind, record, most) FOUNDRY_WRITE_##kind(name)
  FOUNDRY_ARCHIVE_SECTIONS(FOUNDRY_WRITE)
#undef FOUNDRY_WRITE
#undef FOUNDRY_WRITE_golden
#undef FOUNDRY_WRITE_journal
#undef FOUNDRY_WRITE_memory
#undef FOUNDRY_WRITE_graphs
  FOUNDRY_ASSIGN(const archive::WrittenFile written, file.finish());
  report.bytes_by_file[name] = written.bytes;
  return success();
}

Status Saver::write_memory(int directory, const std::string& name, const MemoryState& memory,
                           const std::vector<uint32_t>& reached, SaveReport& report) {
  FOUNDRY_ASSIGN(archive::FileWriter file, archive::FileWriter::create(directory, name, archive::FileKind::memory));
  FOUNDRY_TRY(file.put<Section::zones>(zone_records(memory, file.strings())));

  std::vector<archive::AllocationRecord> allocations;
  for (uint32_t zone = 0; zone < memory.map.zones().size(); ++zone) {
    if (memory.map.zones()[zone].kind != FOUNDRY_ZONE_REBUILT) continue;
    for (const foundry_range& range : memory.allocations[zone]) {
      if (range.ordinal < first_ordinal_) continue;
      allocations.push_back({range.address, range.bytes, range.ordinal, zone, 0});
    }
  }
  FOUNDRY_TRY(file.put<Section::allocations>(allocations));

  const std::vector<archive::MappedRecord> mapped = plan_mapping(memory, reached);
  for (const archive::MappedRecord& record : mapped) report.mapped_bytes += record.bytes;
  FOUNDRY_TRY(file.put<Section::mapped>(mapped));
  FOUNDRY_TRY(tensors_.write(file));

  FOUNDRY_ASSIGN(DeviceMemory device, DeviceMemory::create(process_.driver()));
  FOUNDRY_ASSIGN(MemoryScanner * scanner, this->scanner());
  FOUNDRY_ASSIGN(archive::ContentWriter content, archive::ContentWriter::create(file));
  for (const uint32_t index : reached) {
    const foundry_range& range = memory.map.ranges()[index];
    if (!memory.map.is_materialized(index) || !memory.has_content(range)) continue;
    FOUNDRY_TRY(add_content(content, device, *scanner, range.address, range.bytes));
  }
  FOUNDRY_ASSIGN(const archive::ContentStatistics statistics, content.finish());
  report.content_bytes = statistics.bytes_seen;
  report.stored_bytes = statistics.stored_bytes;
  FOUNDRY_ASSIGN(const archive::WrittenFile written, file.finish());
  report.bytes_by_file[name] = written.bytes;
  return success();
}

Status Saver::write_journal(int directory, const std::string& name, const MemoryState& memory, SaveReport& report) {
  JournalTables journal = collect_journal(process_, memory.map.zones());
  // LOAD repeats what this session allocated in its phases and nothing of a session before it.
  std::erase_if(journal.events, [&](const archive::JournalRecord& event) {
    return event.ordinal < first_ordinal_ && event.zone != archive::kNone &&
           memory.map.zones()[event.zone].kind == FOUNDRY_ZONE_REBUILT;
  });
  FOUNDRY_ASSIGN(const archive::WrittenFile written, journal.write(directory, name));
  report.bytes_by_file[name] = written.bytes;
  return success();
}

}  // namespace foundry::session
