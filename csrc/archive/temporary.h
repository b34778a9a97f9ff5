// Names of files and directories that exist only while something is being written.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "csrc/base/result.h"

namespace foundry::archive {

inline constexpr std::string_view kTemporaryMark = ".tmp-";
inline constexpr std::string_view kSetAsideMark = ".old-";

// "<base><mark><pid>-<16 random hexadecimal digits>". Fails (io) where the system gives no random number.
Result<std::string> temporary_name(std::string_view base, std::string_view mark = kTemporaryMark);
// The process in a name of that form, or nothing if `name` is none for this base and mark.
std::optional<pid_t> temporary_owner(std::string_view name, std::string_view base, std::string_view mark);

}  // namespace foundry::archive
