#include "csrc/session/journal.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>

#include "csrc/archive/validate.h"
#include "csrc/base/text.h"
#include "csrc/session/loader.h"
#include "csrc/session/records.h"

namespace foundry::session {

using archive::Section;

namespace {

// Names of files are bytes; the archive holds text.
std::string as_text(const char* name) {
  std::string text = name == nullptr ? "" : name;
  if (archive::is_text(text)) return text;
  std::replace_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return text;
}

struct Path {
  std::string directory, name;
};

Path split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

std::vector<foundry_zone_info> zones_of(const Process& process, int device) {
  std::vector<foundry_zone_info> zones;
  for (const foundry_zone_info& zone : process.zones()) {
    if (zone.device == device) zones.push_back(zone);
  }
  return zones;
}

}  // namespace

JournalView JournalTables::view() const {
  return {zones, events, stacks, frames, modules, python_frames, strings.bytes()};
}

Result<archive::WrittenFile> JournalTables::write(int directory, const std::string& name) const {
  FOUNDRY_ASSIGN(archive::FileWriter file, archive::FileWriter::create(directory, name, archive::FileKind::journal));
  file.strings() = strings;
  FOUNDRY_TRY(file.put<Section::journal_zones>(zones));
  FOUNDRY_TRY(file.put<Section::journal>(events));
  FOUNDRY_TRY(file.put<Section::journal_stacks>(stacks));
  FOUNDRY_TRY(file.put<Section::journal_frames>(frames));
  FOUNDRY_TRY(file.put<Section::journal_modules>(modules));
  FOUNDRY_TRY(file.put<Section::journal_python_frames>(python_frames));
  return file.finish();
}

JournalTables collect_journal(const Process& process, std::span<const foundry_zone_info> zones) {
  JournalTables tables;
  for (const foundry_zone_info& zone : zones) tables.zones.push_back(zone_record(zone, tables.strings));
  // In the order of foundry_abi: what one list refers to is in the later ones.
  const std::vector<foundry_event> events = process.events();
  const std::vector<foundry_stack> stacks = process.stacks();
  const std::vector<foundry_frame> frames = process.frames();
  const std::vector<foundry_python_frame> python_frames = process.python_frames();
  const std::vector<foundry_module> modules = process.modules();
  for (const foundry_event& event : events) {
    archive::JournalRecord record{};
    record.ordinal = event.ordinal;
    record.address = event.address;
    record.bytes = event.bytes;
    record.stream = event.stream;
    record.kind = event.kind;
    record.zone = archive::kNone;
    for (uint32_t zone = 0; zone < zones.size(); ++zone) {
      if (zones[zone].slot == event.slot) record.zone = zone;
    }
    record.thread = event.thread;
    record.stack = event.stack;
    record.entry_point = tables.strings.add(event.entry_point);
    tables.events.push_back(record);
  }
  for (const foundry_stack& stack : stacks) {
    tables.stacks.push_back({stack.first_frame, stack.frame_count, stack.first_python_frame, stack.python_frame_count});
  }
  for (const foundry_frame& frame : frames) {
    tables.frames.push_back({frame.offset, frame.module == FOUNDRY_NO_MODULE ? archive::kNone : frame.module, 0});
  }
  for (const foundry_module& module : modules) {
    tables.modules.push_back({tables.strings.add(as_text(module.name)), tables.strings.add(module.build_id)});
  }
  for (const foundry_python_frame& frame : python_frames) {
    tables.python_frames.push_back(
        {tables.strings.add(as_text(frame.function)), tables.strings.add(as_text(frame.file)), frame.line, 0});
  }
  return tables;
}

Journal::Journal(archive::File file) : file_(std::move(file)) {
  const archive::SectionInfo* strings = archive::strings_section(archive::FileKind::journal);
  view_ = {file_.section<Section::journal_zones>(),   file_.section<Section::journal>(),
           file_.section<Section::journal_stacks>(),  file_.section<Section::journal_frames>(),
           file_.section<Section::journal_modules>(), file_.section<Section::journal_python_frames>(),
           file_.raw_section(strings->section)};
}

Journal::Journal(JournalTables tables) : tables_(std::move(tables)), view_(tables_.view()) {}

Result<std::shared_ptr<Journal>> Journal::of_archive(const std::string& path, uint32_t rank,
                                                     const std::vector<archive::FileDescription>& inventory) {
  FOUNDRY_ASSIGN(const archive::FileDescriptor directory, archive::open_directory(path));
  FOUNDRY_ASSIGN(archive::File file, open_listed(directory.get(), format("rank_%u/journal.fdry", rank),
                                                 archive::FileKind::journal, inventory));
  return std::shared_ptr<Journal>(new Journal(std::move(file)));
}

Result<std::shared_ptr<Journal>> Journal::of_file(const std::string& path) {
  const Path place = split(path);
  FOUNDRY_ASSIGN(const archive::FileDescriptor directory, archive::open_directory(place.directory));
  FOUNDRY_ASSIGN(archive::File file, archive::File::open(directory.get(), place.name, archive::FileKind::journal));
  FOUNDRY_TRY(archive::validate(file));
  return std::shared_ptr<Journal>(new Journal(std::move(file)));
}

Result<std::shared_ptr<Journal>> Journal::of_process(int device) {
  FOUNDRY_ASSIGN(Process * process, Process::get());
  return std::shared_ptr<Journal>(new Journal(collect_journal(*process, zones_of(*process, device))));
}

Status write_process_journal(int device, const std::string& path) {
  FOUNDRY_ASSIGN(Process * process, Process::get());
  const JournalTables tables = collect_journal(*process, zones_of(*process, device));
  const Path place = split(path);
  FOUNDRY_ASSIGN(const archive::FileDescriptor directory, archive::open_directory(place.directory));
  const std::string staged = format("%s.tmp-%d", place.name.c_str(), static_cast<int>(getpid()));
  FOUNDRY_TRY(archive::remove_tree(directory.get(), staged));  // of an earlier process with this number
  auto written = tables.write(directory.get(), staged);
  if (written.ok() && renameat(directory.get(), staged.c_str(), directory.get(), place.name.c_str()) == 0) {
    return success();
  }
  const Error error = written.ok() ? archive::io_error("cannot replace", path, errno) : written.error();
  unlinkat(directory.get(), staged.c_str(), 0);
  return error;
}

}  // namespace foundry::session
