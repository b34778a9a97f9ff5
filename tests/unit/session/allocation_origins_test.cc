#include "csrc/session/allocation_origins.h"

#include <gtest/gtest.h>

namespace foundry::session {
namespace {

JournalTables tables() {
  JournalTables made;
  const auto text = [&](const char* words) { return made.strings.add(words); };
  for (const char* module :
       {"libcuda_hook.so", "libtorch_cuda.so", "_core.cpython-312-x86_64-linux-gnu.so", "engine"}) {
    made.modules.push_back({text(module), {}});
  }
  // As a stack is: the innermost frame first. One frame lies in no file.
  made.frames = {{0x10, 0, 0}, {0x20, 2, 0}, {0x30, 1, 0}, {0, archive::kNone, 0},
                 {0x50, 3, 0}, {0x60, 3, 0}, {0x70, 3, 0}, {0x80, 3, 0}};
  made.python_frames = {{text("grow"), text("scratch.py"), 12, 0}, {text("step"), text("engine.py"), 40, 0}};
  made.stacks = {{0, 8, 0, 0}, {0, 3, 0, 2}, {0, 2, 0, 2}, {0, 2, 0, 0}};
  return made;
}

TEST(StackText, NamesTheInnermostFramesThatTellSomething) {
  const JournalTables journal = tables();
  EXPECT_EQ(stack_text(journal.view(), 1), "libtorch_cuda.so+0x30 < engine+0x50 < engine+0x60 < engine+0x70");
}

TEST(StackText, PythonFirst) {
  const JournalTables journal = tables();
  EXPECT_EQ(stack_text(journal.view(), 2), "grow (scratch.py:12) < step (engine.py:40); libtorch_cuda.so+0x30");
  EXPECT_EQ(stack_text(journal.view(), 3), "grow (scratch.py:12) < step (engine.py:40)");
}

TEST(StackText, IsEmptyWhereNothingIsKnown) {
  const JournalTables journal = tables();
  EXPECT_EQ(stack_text(journal.view(), 0), "");  // none was taken
  EXPECT_EQ(stack_text(journal.view(), 4), "");  // nothing but what every allocation passes through
  EXPECT_EQ(stack_text(journal.view(), 5), "");  // no such stack
}

}  // namespace
}  // namespace foundry::session
