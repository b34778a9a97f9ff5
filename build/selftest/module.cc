// A module to test foundry_pybind_extension with.
#include <pybind11/pybind11.h>

#include "build/selftest/answer.h"

PYBIND11_MODULE(selftest_module, m) {
  m.def("sum_of_squares", &foundry::selftest::sum_of_squares);
  m.def("throw_in_parallel", &foundry::selftest::throw_in_parallel);
}
