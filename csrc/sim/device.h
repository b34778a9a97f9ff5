// The devices that the environment describes.
//   FOUNDRY_SIM_DEVICE          preset, or a comma list of presets: a100-40gb, a100-80gb, h100 (the default), h200
//   FOUNDRY_SIM_DEVICE_COUNT    that many of the (last) preset; 0 is a machine without a GPU
//   FOUNDRY_SIM_NAME, _CC ("8.0"), _SMS, _MEMORY (bytes, or with k, m, g), _GRANULARITY   change every device
//   FOUNDRY_SIM_DRIVER_VERSION  what cuDriverGetVersion says (13000)
//   CUDA_VISIBLE_DEVICES        indices or GPU-<uuid>, as the real driver reads it
#pragma once

#include <memory>
#include <string>

#include "csrc/sim/cuda_api.h"

namespace foundry::sim {

struct Context;

struct Device {
  int ordinal = 0;   // after CUDA_VISIBLE_DEVICES
  int physical = 0;  // on the machine
  std::string name;
  int cc_major = 0, cc_minor = 0;
  int sm_count = 0;
  std::size_t memory = 0, granularity = 0;
  int shared_per_sm = 0, shared_optin = 0;
  int l2_bytes = 0;
  CUuuid uuid = {};

  std::size_t used = 0;
  std::shared_ptr<Context> primary;
  unsigned primary_references = 0, primary_flags = 0;
  CUmemoryPool default_pool = nullptr, current_pool = nullptr;
};

constexpr int kDefaultDynamicShared = 48 * 1024;

int driver_version();
int device_count();
Device* device_at(int ordinal);  // null when there is none
std::string device_bus_id(const Device& device);

// The device's share of an allocation: out of memory where the device is full or a fault asks for it. `requested` is
// what the client asked for, before rounding.
CUresult charge(Device& device, std::size_t bytes, std::size_t requested);
void refund(Device& device, std::size_t bytes);

}  // namespace foundry::sim
