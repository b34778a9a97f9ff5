#include "csrc/device/block_summary_sm80.h"
#include "csrc/device/code.h"
#include "csrc/device/pointer_scan_sm80.h"

namespace foundry::device {

const Code& code_sm80() {
  static const Code code{
      80, {block_summary_sm80_begin, block_summary_sm80_size}, {pointer_scan_sm80_begin, pointer_scan_sm80_size}};
  return code;
}

}  // namespace foundry::device
