#include "csrc/device/block_summary_sm90.h"
#include "csrc/device/code.h"
#include "csrc/device/pointer_scan_sm90.h"

namespace foundry::device {

const Code& code_sm90() {
  static const Code code{
      90, {block_summary_sm90_begin, block_summary_sm90_size}, {pointer_scan_sm90_begin, pointer_scan_sm90_size}};
  return code;
}

}  // namespace foundry::device
