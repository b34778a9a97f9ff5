// What a kernel of the simulated driver is written with: launch geometry, and macros that put a record of every kernel
// and module variable into the ELF section that image.cc reads. Freestanding: kernels link libc and libm only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

// The architecture an image is compiled for (80, 90), given by the build; only code of an image may look at it.
#ifndef FOUNDRY_SIM_ARCH
#define FOUNDRY_SIM_ARCH 0
#endif

namespace foundry::sim {

struct SimDim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  constexpr std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

// One launch as the kernel sees it. The entry runs the whole grid; nothing in here depends on the stream.
struct SimLaunch {
  SimDim3 grid;
  SimDim3 block;
  SimDim3 cluster;  // 1,1,1 without a cluster attribute
  std::uint32_t dynamic_shared_bytes = 0;
  std::uint32_t sm_count = 0;
  std::int32_t cc_major = 0, cc_minor = 0;
  std::int32_t device = 0;  // ordinal
};

using SimEntry = void (*)(const SimLaunch*, void** args);

// The record format that images carry; image.cc checks every field of it.
constexpr char kRecordSection[] = ".foundry.sim";
constexpr std::uint32_t kRecordMagic = 0x314d4953;  // "SIM1"
enum class RecordKind : std::uint32_t { kKernel = 1, kGlobal = 2, kConstant = 3 };

struct SimParam {
  std::uint32_t offset, size;
};

// What the compiler of a real kernel would have decided.
struct SimKernelTraits {
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t max_threads_per_block = 1024;
  std::uint32_t registers = 32;
  std::uint32_t local_bytes = 0;
  SimDim3 required_cluster = {0, 0, 0};  // __cluster_dims__; 0,0,0: none
};

// Fixed size and alignment, so that the section is an array whatever the compiler's own idea of alignment.
struct alignas(128) SimRecord {
  std::uint32_t magic;
  RecordKind kind;
  std::uint32_t arch;  // 80, 90: what the image was compiled for
  const char* name;
  void* address;  // entry of a kernel, or the variable
  std::uint64_t bytes;
  const SimParam* params;
  std::uint64_t param_count;
  SimKernelTraits traits;
};
static_assert(sizeof(SimRecord) == 128);

namespace detail {

template <class Function>
struct Signature;

template <class... Args>
struct Signature<void (*)(const SimLaunch&, Args...)> {
  static_assert((std::is_trivially_copyable_v<Args> && ...), "kernel arguments are copied as bytes");

  struct Layout {
    SimParam params[sizeof...(Args) == 0 ? 1 : sizeof...(Args)];
  };

  // Offsets as nvcc lays out the parameter space: in order, each at its own alignment.
  static constexpr Layout layout() {
    Layout out{};
    std::uint32_t cursor = 0;
    std::size_t index = 0;
    ((cursor = (cursor + alignof(Args) - 1) / alignof(Args) * alignof(Args),
      out.params[index++] = SimParam{cursor, static_cast<std::uint32_t>(sizeof(Args))}, cursor += sizeof(Args)),
     ...);
    return out;
  }

  template <class Arg>
  static Arg read(const void* from) {  // a client's storage need not be aligned
    Arg value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }

  template <std::size_t... Index>
  static void call(void (*function)(const SimLaunch&, Args...), const SimLaunch& launch, [[maybe_unused]] void** args,
                   std::index_sequence<Index...>) {
    function(launch, read<Args>(args[Index])...);
  }

  static void invoke(void (*function)(const SimLaunch&, Args...), const SimLaunch& launch, void** args) {
    call(function, launch, args, std::index_sequence_for<Args...>{});
  }

  static constexpr std::size_t count = sizeof...(Args);
};

}  // namespace detail

// Dynamic shared memory of one block: allocated by the kernel, with content that no kernel may rely on.
class SharedMemory {
 public:
  explicit SharedMemory(const SimLaunch& launch) : data_(std::malloc(launch.dynamic_shared_bytes + 16)) {
    if (data_ == nullptr) std::abort();
    std::memset(data_, 0xcd, launch.dynamic_shared_bytes + 16);
  }
  ~SharedMemory() { std::free(data_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

}  // namespace foundry::sim

#if defined(__has_attribute) && __has_attribute(retain)
#define FOUNDRY_SIM_KEEP_ used, retain
#else
#define FOUNDRY_SIM_KEEP_ used
#endif
#define FOUNDRY_SIM_RECORD_ [[maybe_unused]] __attribute__((FOUNDRY_SIM_KEEP_, section(".foundry.sim"))) static

// Registers `function`, a `void f(const SimLaunch&, Args...)`, as the kernel `symbol` (an identifier, as a rule a
// mangled C++ name). Options are SimKernelTraits designators: FOUNDRY_SIM_KERNEL(_Z1fPf, f, .registers = 40); This and
// the variables below stand outside of every namespace.
#define FOUNDRY_SIM_KERNEL(symbol, function, ...)                                                              \
  extern "C" __attribute__((used, visibility("default"))) void symbol(const ::foundry::sim::SimLaunch* launch, \
                                                                      void** args) {                           \
    ::foundry::sim::detail::Signature<decltype(&function)>::invoke(&function, *launch, args);                  \
  }                                                                                                            \
  static constexpr auto foundry_sim_layout_##symbol =                                                          \
      ::foundry::sim::detail::Signature<decltype(&function)>::layout();                                        \
  FOUNDRY_SIM_RECORD_ ::foundry::sim::SimRecord foundry_sim_record_##symbol = {                                \
      ::foundry::sim::kRecordMagic,                                                                            \
      ::foundry::sim::RecordKind::kKernel,                                                                     \
      FOUNDRY_SIM_ARCH,                                                                                        \
      #symbol,                                                                                                 \
      reinterpret_cast<void*>(&symbol),                                                                        \
      sizeof(&symbol),                                                                                         \
      foundry_sim_layout_##symbol.params,                                                                      \
      ::foundry::sim::detail::Signature<decltype(&function)>::count,                                           \
      ::foundry::sim::SimKernelTraits{__VA_ARGS__}}

// A module variable with its initial value, in the section where a real cubin has it, so that readers of the ELF symbol
// table find it there too. An array needs an alias for its type.
#define FOUNDRY_SIM_VARIABLE_(kind_, section_, type, name, ...)                                                 \
  extern "C" __attribute__((visibility("default"), section(section_))) type name;                               \
  __attribute__((used)) type name = {__VA_ARGS__};                                                              \
  FOUNDRY_SIM_RECORD_ ::foundry::sim::SimRecord foundry_sim_record_##name = {::foundry::sim::kRecordMagic,      \
                                                                             ::foundry::sim::RecordKind::kind_, \
                                                                             FOUNDRY_SIM_ARCH,                  \
                                                                             #name,                             \
                                                                             &name,                             \
                                                                             sizeof(name),                      \
                                                                             nullptr,                           \
                                                                             0,                                 \
                                                                             ::foundry::sim::SimKernelTraits{}}
#define FOUNDRY_SIM_GLOBAL(type, name, ...) FOUNDRY_SIM_VARIABLE_(kGlobal, ".nv.global.init", type, name, __VA_ARGS__)
#define FOUNDRY_SIM_CONSTANT(type, name, ...) FOUNDRY_SIM_VARIABLE_(kConstant, ".nv.constant3", type, name, __VA_ARGS__)
