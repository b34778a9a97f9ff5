#include "csrc/hook/image_memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

namespace foundry::hook {
namespace {

struct Search {
  uint64_t address;
  std::optional<MappedFile> found;
};

int look(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uint64_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || search.address < begin || search.address >= begin + segment.p_filesz) continue;
    search.found = MappedFile{info->dlpi_name == nullptr ? "" : info->dlpi_name,
                              begin + segment.p_filesz - search.address, (segment.p_flags & PF_W) != 0};
    return 1;
  }
  return 0;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

// Where process_vm_readv is forbidden (containers).
bool copy_through_file(const void* from, void* to, size_t bytes) {
  const Descriptor memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  if (memory.get() < 0) return false;
  for (size_t done = 0; done < bytes;) {
    const ssize_t step = pread(memory.get(), static_cast<char*>(to) + done, bytes - done,
                               static_cast<off_t>(reinterpret_cast<uint64_t>(from) + done));
    if (step < 0 && errno == EINTR) continue;
    if (step <= 0) return false;
    done += static_cast<size_t>(step);
  }
  return true;
}

}  // namespace

std::optional<MappedFile> mapped_file(const void* address) {
  Search search{reinterpret_cast<uint64_t>(address), std::nullopt};
  dl_iterate_phdr(look, &search);
  return search.found;
}

bool keep_loaded(const std::string& path) {
  if (path.empty()) return true;
  static std::mutex mutex;
  static auto& kept = *new std::set<std::string>;
  {
    const std::lock_guard lock(mutex);
    if (kept.contains(path)) return true;
  }
  // Not under the lock: the loader has one of its own, and runs code that may come here.
  if (dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY) == nullptr) {
    dlerror();  // not the application's
    return false;
  }
  const std::lock_guard lock(mutex);
  kept.insert(path);
  return true;
}

bool copy_memory(const void* from, void* to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const iovec here{static_cast<char*>(to) + done, bytes - done};
    const iovec there{const_cast<char*>(static_cast<const char*>(from)) + done, bytes - done};
    const ssize_t step = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (step < 0 && (errno == ENOSYS || errno == EPERM)) {
      return copy_through_file(static_cast<const char*>(from) + done, static_cast<char*>(to) + done, bytes - done);
    }
    if (step <= 0) return false;
    done += static_cast<size_t>(step);
  }
  return true;
}

std::optional<std::string> read_file(const char* path, uint64_t most) {
  const Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) return std::nullopt;
  if (status.st_size < 0 || static_cast<uint64_t>(status.st_size) > most) {
    errno = EFBIG;
    return std::nullopt;
  }
  std::string content;
  content.resize(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t step = read(file.get(), content.data() + done, content.size() - done);
    if (step < 0 && errno == EINTR) continue;
    if (step < 0) return std::nullopt;
    if (step == 0) break;
    done += static_cast<size_t>(step);
  }
  content.resize(done);
  return content;
}

}  // namespace foundry::hook
