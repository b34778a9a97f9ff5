// A shared library to test foundry_shared_library with: uses the C++ runtime, exports one symbol.
#include <stdexcept>
#include <string>

extern "C" __attribute__((visibility("default"))) int selftest_answer() {
  try {
    throw std::runtime_error(std::string(42, 'x'));
  } catch (const std::exception& error) {
    return static_cast<int>(std::string(error.what()).size());
  }
}

extern "C" __attribute__((visibility("default"))) int selftest_secret() { return 1; }
