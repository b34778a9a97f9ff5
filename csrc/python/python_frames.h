// Python frames for the stacks of a journal: function, base name of the file, line; never a value.
#pragma once

#include "csrc/abi/foundry_abi.h"

namespace foundry::python {

// Lets the owner of the zones ask for Python frames, where FOUNDRY_JOURNAL wants them.
void offer_python_frames(const foundry_abi& abi);

// Takes the calling thread's frames while it holds the interpreter lock; allocations that it makes without the lock,
// before this object goes, have them. Does nothing where nobody wants Python frames.
class HeldFrames {
 public:
  HeldFrames();
  ~HeldFrames();
  HeldFrames(const HeldFrames&) = delete;
  HeldFrames& operator=(const HeldFrames&) = delete;

 private:
  size_t previous_;
};

}  // namespace foundry::python
