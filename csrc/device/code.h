// The device code that a library carries, per sm target: sm_80 with PTX for everything newer, sm_90 for 9.0 alone.
#pragma once

#include <cstddef>

namespace foundry::device {

struct Fatbin {
  const unsigned char* data;
  size_t bytes;
};

struct Code {
  int sm_target;
  Fatbin block_summary;  // kernel foundry_block_summary
  Fatbin pointer_scan;   // kernel foundry_pointer_scan
};

// Each lies in a library of its own: the hook links its target, _core both.
const Code& code_sm80();
const Code& code_sm90();

}  // namespace foundry::device
