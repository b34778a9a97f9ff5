// Storage for exceptions without dynamic thread-local storage, which would need ld.so as a library, and without
// libstdc++'s emergency pool: 73 KB of heap, allocated by a constructor in every process that the hook is preloaded
// into. Both are replaced by defining what members of the static C++ runtime define, so that they are not linked.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>

namespace {

// __cxa_eh_globals of the C++ ABI.
struct Globals {
  void* caught;
  unsigned int uncaught;
};
__attribute__((tls_model("initial-exec"))) thread_local constinit Globals t_globals{};

}  // namespace

extern "C" {
void* __cxa_get_globals() noexcept { return &t_globals; }
void* __cxa_get_globals_fast() noexcept { return &t_globals; }
}

#ifdef __GLIBCXX__
namespace {

// __cxa_refcounted_exception of the C++ ABI on 64-bit machines, which stands before the thrown object.
constexpr size_t kHeaderBytes = 128;

// Where the heap has nothing left, which is when std::bad_alloc is thrown.
constexpr size_t kSpares = 16;
constexpr size_t kSpareBytes = 512;
struct alignas(16) Spare {
  unsigned char bytes[kSpareBytes];
};
Spare g_spares[kSpares];
std::atomic<bool> g_taken[kSpares];

void* storage(size_t bytes) noexcept {
  void* found = std::malloc(bytes);
  for (size_t i = 0; i < kSpares && found == nullptr && bytes <= kSpareBytes; ++i) {
    if (!g_taken[i].exchange(true)) found = &g_spares[i];
  }
  if (found == nullptr) std::terminate();  // as the language says
  std::memset(found, 0, bytes);
  return found;
}

void give_back(void* storage) noexcept {
  auto* const spare = static_cast<Spare*>(storage);
  if (std::less_equal<>{}(&g_spares[0], spare) && std::less<>{}(spare, &g_spares[kSpares])) {
    g_taken[spare - g_spares].store(false);
  } else {
    std::free(storage);
  }
}

}  // namespace

extern "C" {
void* __cxa_allocate_exception(size_t thrown_bytes) noexcept {
  return static_cast<unsigned char*>(storage(thrown_bytes + kHeaderBytes)) + kHeaderBytes;
}
void __cxa_free_exception(void* thrown) noexcept { give_back(static_cast<unsigned char*>(thrown) - kHeaderBytes); }
void* __cxa_allocate_dependent_exception() noexcept { return storage(kHeaderBytes); }
void __cxa_free_dependent_exception(void* dependent) noexcept { give_back(dependent); }
}
#endif
