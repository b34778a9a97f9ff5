// Shared by the two halves of the fake driver.
#pragma once

#include "tests/unit/graph/fake_driver.h"

namespace foundry::graph::testing {

template <class T, class H>
T* as(H handle) {
  return reinterpret_cast<T*>(handle);
}
template <class H>
bool has_tag(H handle, Tag tag) {
  return handle != nullptr && reinterpret_cast<FakeObject*>(handle)->tag == tag;
}

#define ENTER(name, context) \
  if (const CUresult fault = FakeDriver::now().enter(#name, context); fault != CUDA_SUCCESS) return fault

// The fake's value of a function attribute that `set` may override.
int attribute_of(const FakeKernel& kernel, const std::map<int, int>& set, int id);

// Fills in the table's cuGraph functions.
void bind_graphs(driver::Driver& table);

}  // namespace foundry::graph::testing
