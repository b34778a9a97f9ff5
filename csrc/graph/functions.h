// The functions that captured graphs use: driver handles turned into FunctionRecords, each function once.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "csrc/driver/driver.h"
#include "csrc/graph/images.h"
#include "csrc/graph/tables.h"

namespace foundry::graph {

class FunctionTable {
 public:
  FunctionTable(const driver::Driver& driver, ImageResolver& images, GraphTables& tables)
      : driver_(driver), images_(images), tables_(tables) {}

  struct Known {
    uint32_t index;         // in tables.functions
    uint32_t buffer_bytes;  // of a buffer that holds all parameters at their offsets
    bool clustered;         // it was compiled, or set, to launch in clusters
  };

  // Must be called before a graph is read: forgets handles that may mean something else now.
  void refresh();
  // The function behind a kernel node's two handles (either may be null), added if it is new.
  Result<Known> find(CUfunction function, CUkernel kernel);
  // Name of the kernel as people read it; never fails.
  std::string readable_name(CUfunction function, CUkernel kernel) const;
  std::string readable_name(uint32_t index) const;

  // Makes what find() added since the last commit permanent. `first_kernel` is the first new record in tables.kernels:
  // its dynamic shared memory counts for the function's maximum.
  void commit(size_t first_kernel);
  // Forgets what find() added since; the tables were rolled back already.
  void roll_back();

  const std::vector<uint64_t>& image_ids() const { return image_ids_; }

 private:
  struct State {
    std::string name;
    uint32_t buffer_bytes = 0;
    bool clustered = false;
    int static_shared = 0;
    std::vector<int> attributes;  // by row of function_attributes()
  };

  KernelHandle told_apart(CUfunction function, CUkernel kernel) const;
  Result<std::string> name_of(const KernelHandle& handle) const;
  Result<Known> add(const KernelHandle& handle, uint32_t image, const std::string& name);
  Status read_attributes(const KernelHandle& handle, State& state) const;
  uint32_t image_index(uint64_t id);
  void write_attributes();

  const driver::Driver& driver_;
  ImageResolver& images_;
  GraphTables& tables_;
  std::vector<State> states_;  // by index
  std::vector<uint64_t> image_ids_;
  boost::unordered_flat_map<uint64_t, uint32_t> image_by_id_;
  boost::unordered_flat_map<const void*, Known> by_handle_;
  boost::unordered_flat_map<std::pair<uint32_t, std::string>, uint32_t> by_name_;  // (image, mangled name)
  size_t committed_ = 0;                                                           // functions
  uint64_t generation_ = 0;
  bool attributes_changed_ = false;
};

}  // namespace foundry::graph
