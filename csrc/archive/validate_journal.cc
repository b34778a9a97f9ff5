// Semantic checks of journal files: events, and the stacks they refer to.
#include <algorithm>

#include "csrc/archive/checker.h"
#include "csrc/archive/validate.h"

namespace foundry::archive {
namespace {

void check_events(const File& file, Checker& check) {
  const size_t zones = file.section<Section::journal_zones>().size();
  const size_t stacks = file.section<Section::journal_stacks>().size();
  const auto journal = file.section<Section::journal>();
  for (size_t i = 0; i < journal.size(); ++i) {
    const JournalRecord& record = journal[i];
    check.at(Section::journal, i);
    check.require(record.kind >= 1, "the kind of event is zero");
    if (record.zone != kNone) check.index("zone", record.zone, Section::journal_zones, zones);
    if (record.stack != 0) check.index("stack", record.stack - 1, Section::journal_stacks, stacks);
    check.text("entry_point", record.entry_point);
  }
}

void check_stacks(const File& file, Checker& check) {
  const size_t frames = file.section<Section::journal_frames>().size();
  const size_t python_frames = file.section<Section::journal_python_frames>().size();
  const auto stacks = file.section<Section::journal_stacks>();
  for (size_t i = 0; i < stacks.size(); ++i) {
    const StackRecord& stack = stacks[i];
    check.at(Section::journal_stacks, i);
    check.require(stack.frame_count <= kMostStackFrames && stack.python_frame_count <= kMostStackFrames,
                  "it has more frames than any stack that is taken");
    check.range("frames", stack.first_frame, stack.frame_count, Section::journal_frames, frames);
    check.range("python_frames", stack.first_python_frame, stack.python_frame_count, Section::journal_python_frames,
                python_frames);
  }
}

void check_frames(const File& file, Checker& check) {
  const size_t modules = file.section<Section::journal_modules>().size();
  const auto frames = file.section<Section::journal_frames>();
  for (size_t i = 0; i < frames.size(); ++i) {
    check.at(Section::journal_frames, i);
    check.reserved(frames[i].reserved);
    if (frames[i].module != kNone) check.index("module", frames[i].module, Section::journal_modules, modules);
  }
  const auto python_frames = file.section<Section::journal_python_frames>();
  for (size_t i = 0; i < python_frames.size(); ++i) {
    check.at(Section::journal_python_frames, i);
    check.reserved(python_frames[i].reserved);
    check.text("function", python_frames[i].function);
    check.text("file", python_frames[i].file);
  }
}

void check_modules(const File& file, Checker& check) {
  const auto hexadecimal = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const auto modules = file.section<Section::journal_modules>();
  for (size_t i = 0; i < modules.size(); ++i) {
    check.at(Section::journal_modules, i);
    check.name("name", modules[i].name);
    check.require(file.view(modules[i].name).find('/') == std::string_view::npos, "its name is a path");
    check.text("build_id", modules[i].build_id, kMostBuildIdBytes);
    const std::string_view id = file.view(modules[i].build_id);
    check.require(std::all_of(id.begin(), id.end(), hexadecimal), "its build-id is not hexadecimal");
  }
}

}  // namespace

void validate_journal(const File& file) {
  Checker check(file);
  check.strings();
  check.zones<Section::journal_zones>();
  check_modules(file, check);
  check_frames(file, check);
  check_stacks(file, check);
  check_events(file, check);
}

}  // namespace foundry::archive
