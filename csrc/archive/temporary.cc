#include "csrc/archive/temporary.h"

#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

#include <charconv>

#include "csrc/archive/files.h"
#include "csrc/base/text.h"

namespace foundry::archive {

Result<std::string> temporary_name(std::string_view base, std::string_view mark) {
  // Not std::random_device: it throws, and reads /dev/urandom, which a chroot may lack.
  unsigned long long random;
  ssize_t got;
  do {
    got = getrandom(&random, sizeof random, 0);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof random) {
    return io_error("The system gives no random number (getrandom) for the temporary name of", std::string(base),
                    got < 0 ? errno : EIO);
  }
  return std::string(base) + std::string(mark) + std::to_string(getpid()) + format("-%016llx", random);
}

std::optional<pid_t> temporary_owner(std::string_view name, std::string_view base, std::string_view mark) {
  if (!name.starts_with(base) || !name.substr(base.size()).starts_with(mark)) return std::nullopt;
  const std::string_view rest = name.substr(base.size() + mark.size());
  const size_t dash = rest.find('-');
  if (dash == std::string_view::npos || rest.size() != dash + 17) return std::nullopt;
  if (rest.find_first_not_of("0123456789abcdef", dash + 1) != std::string_view::npos) return std::nullopt;
  pid_t pid = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + dash, pid);
  if (parsed.ec != std::errc() || parsed.ptr != rest.data() + dash || pid <= 0) return std::nullopt;
  return pid;
}

}  // namespace foundry::archive
