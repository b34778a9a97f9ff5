// Devices from the environment, and what the driver says about them.
#include "csrc/sim/device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "csrc/sim/faults.h"
#include "csrc/sim/runtime.h"

namespace foundry::sim {
namespace {

struct Preset {
  const char* word;
  const char* name;
  int cc_major, cc_minor, sm_count;
  std::size_t memory;
  int shared_per_sm, shared_optin, l2_bytes;
};

// Source: what cuDeviceGetAttribute and cuDeviceTotalMem say on these cards.
constexpr Preset kPresets[] = {
    {"h100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 85029158912, 228 * 1024, 227 * 1024, 50 << 20},
    {"h200", "NVIDIA H200", 9, 0, 132, 150109880320, 228 * 1024, 227 * 1024, 60 << 20},
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", 8, 0, 108, 42298834944, 164 * 1024, 163 * 1024, 40 << 20},
    {"a100-80gb", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 84974239744, 164 * 1024, 163 * 1024, 40 << 20},
};

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::size_t bytes_of(const std::string& text) {
  char* end = nullptr;
  std::size_t value = std::strtoull(text.c_str(), &end, 10);
  switch (*end) {
    case 'g':
    case 'G':
      return value << 30;
    case 'm':
    case 'M':
      return value << 20;
    case 'k':
    case 'K':
      return value << 10;
    default:
      return value;
  }
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t end = std::min(text.find(',', at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string uuid_text(const CUuuid& uuid) {
  const auto* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
  char text[64];
  std::snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return text;
}

Device make_device(const Preset& preset, int physical) {
  Device device;
  device.physical = physical;
  device.name = preset.name;
  device.cc_major = preset.cc_major;
  device.cc_minor = preset.cc_minor;
  device.sm_count = preset.sm_count;
  device.memory = preset.memory;
  device.granularity = std::size_t{2} << 20;
  device.shared_per_sm = preset.shared_per_sm;
  device.shared_optin = preset.shared_optin;
  device.l2_bytes = preset.l2_bytes;
  if (std::string v = variable("FOUNDRY_SIM_NAME"); !v.empty()) device.name = v;
  if (std::string v = variable("FOUNDRY_SIM_CC"); !v.empty()) {
    std::sscanf(v.c_str(), "%d.%d", &device.cc_major, &device.cc_minor);
  }
  if (std::string v = variable("FOUNDRY_SIM_SMS"); !v.empty()) device.sm_count = std::atoi(v.c_str());
  if (std::string v = variable("FOUNDRY_SIM_MEMORY"); !v.empty()) device.memory = bytes_of(v);
  if (std::string v = variable("FOUNDRY_SIM_GRANULARITY"); !v.empty()) device.granularity = bytes_of(v);
  std::memcpy(device.uuid.bytes, "foundry-sim", 11);
  device.uuid.bytes[15] = static_cast<char>(physical);
  return device;
}

std::vector<Device> machine() {
  std::vector<const Preset*> presets;
  for (const std::string& word : words(variable("FOUNDRY_SIM_DEVICE"))) {
    bool known = false;
    for (const Preset& preset : kPresets) {
      if (word != preset.word) continue;
      presets.push_back(&preset);
      known = true;
    }
    if (!known) note("FOUNDRY_SIM_DEVICE names no preset: %s", word.c_str());
  }
  if (presets.empty()) presets.push_back(&kPresets[0]);
  if (std::string v = variable("FOUNDRY_SIM_DEVICE_COUNT"); !v.empty()) {
    std::size_t count = std::strtoul(v.c_str(), nullptr, 10);
    presets.resize(count, presets.back());
  }
  std::vector<Device> out;
  for (const Preset* preset : presets) out.push_back(make_device(*preset, static_cast<int>(out.size())));
  return out;
}

std::vector<Device>& devices() {
  static auto* visible = [] {
    std::vector<Device> all = machine();
    auto* out = new std::vector<Device>;
    if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES")) {
      for (const std::string& word : words(list)) {
        const Device* found = nullptr;
        for (const Device& device : all) {
          bool by_index = word == std::to_string(device.physical);
          bool by_uuid = word.rfind("GPU-", 0) == 0 && uuid_text(device.uuid).rfind(word, 0) == 0;
          if (by_index || by_uuid) found = &device;
        }
        if (found == nullptr) break;  // the real driver ignores the rest of the list too
        out->push_back(*found);
      }
    } else {
      *out = all;
    }
    for (std::size_t i = 0; i < out->size(); ++i) (*out)[i].ordinal = static_cast<int>(i);
    return out;
  }();
  return *visible;
}

CUresult find(CUdevice ordinal, Device** device) {
  *device = device_at(ordinal);
  return *device != nullptr ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_DEVICE, "no device %d", ordinal);
}

// Attributes that describe what the simulator does and the cards it stands for; the rest of the enum answers 0.
CUresult attribute(const Device& d, CUdevice_attribute which, int* value) {
  bool hopper = d.cc_major >= 9;
  switch (which) {
#define A(name, expression)                \
  case CU_DEVICE_ATTRIBUTE_##name:         \
    *value = static_cast<int>(expression); \
    return CUDA_SUCCESS;
#include "csrc/sim/device_attributes.inc"
#undef A
    default:
      if (which <= 0 || which >= CU_DEVICE_ATTRIBUTE_MAX) {
        return fail(CUDA_ERROR_INVALID_VALUE, "unknown device attribute %d", static_cast<int>(which));
      }
      *value = 0;
      return CUDA_SUCCESS;
  }
}

}  // namespace

int driver_version() {
  static const int version = [] {
    std::string text = variable("FOUNDRY_SIM_DRIVER_VERSION");
    return text.empty() ? CUDA_VERSION : std::atoi(text.c_str());
  }();
  return version;
}

int device_count() { return static_cast<int>(devices().size()); }

Device* device_at(int ordinal) { return ordinal >= 0 && ordinal < device_count() ? &devices()[ordinal] : nullptr; }

std::string device_bus_id(const Device& device) {
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", 0x10 + device.physical);
  return text;
}

CUresult charge(Device& device, std::size_t bytes, std::size_t requested) {
  if (allocation_refused(requested)) return fail(CUDA_ERROR_OUT_OF_MEMORY, "%zu bytes: fault on demand", requested);
  if (bytes > device.memory - device.used) {
    return fail(CUDA_ERROR_OUT_OF_MEMORY, "%zu bytes do not fit: device %d has %zu bytes, %zu are in use", bytes,
                device.ordinal, device.memory, device.used);
  }
  device.used += bytes;
  return CUDA_SUCCESS;
}

void refund(Device& device, std::size_t bytes) { device.used -= bytes; }

SIM_API(cuInit, (unsigned int flags), (flags)) {
  if (flags != 0) return fail(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
  if (device_count() == 0) return fail(CUDA_ERROR_NO_DEVICE, "the environment describes no visible device");
  set_initialized();
  return CUDA_SUCCESS;
}

SIM_API(cuDriverGetVersion, (int* version), (version)) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = driver_version();
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal)) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* found;
  SIM_TRY(find(ordinal, &found));
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetCount, (int* count), (count)) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = device_count();
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetName, (char* name, int length, CUdevice dev), (name, length, dev)) {
  Device* device;
  SIM_TRY(find(dev, &device));
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", device->name.c_str());
  return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid* uuid, CUdevice dev) {
  Device* device;
  SIM_TRY(find(dev, &device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *uuid = device->uuid;
  return CUDA_SUCCESS;
}
SIM_API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice dev), (uuid, dev)) { return get_uuid(uuid, dev); }
SIM_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice dev), (uuid, dev)) { return get_uuid(uuid, dev); }

SIM_API(cuDeviceTotalMem_v2, (size_t* bytes, CUdevice dev), (bytes, dev)) {
  Device* device;
  SIM_TRY(find(dev, &device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->memory;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetAttribute, (int* value, CUdevice_attribute which, CUdevice dev), (value, which, dev)) {
  Device* device;
  SIM_TRY(find(dev, &device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return attribute(*device, which, value);
}

SIM_API(cuDeviceComputeCapability, (int* major, int* minor, CUdevice dev), (major, minor, dev)) {
  Device* device;
  SIM_TRY(find(dev, &device));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = device->cc_major;
  *minor = device->cc_minor;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetPCIBusId, (char* text, int length, CUdevice dev), (text, length, dev)) {
  Device* device;
  SIM_TRY(find(dev, &device));
  if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<std::size_t>(length), "%s", device_bus_id(*device).c_str());
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetByPCIBusId, (CUdevice * dev, const char* text), (dev, text)) {
  if (dev == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < device_count(); ++i) {
    if (device_bus_id(*device_at(i)) != text) continue;
    *dev = i;
    return CUDA_SUCCESS;
  }
  return fail(CUDA_ERROR_INVALID_DEVICE, "no device at %s", text);
}

SIM_API(cuDeviceCanAccessPeer, (int* can, CUdevice dev, CUdevice peer), (can, dev, peer)) {
  Device *device, *other;
  SIM_TRY(find(dev, &device));
  SIM_TRY(find(peer, &other));
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = device != other;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetP2PAttribute, (int* value, CUdevice_P2PAttribute which, CUdevice dev, CUdevice peer),
        (value, which, dev, peer)) {
  Device *device, *other;
  SIM_TRY(find(dev, &device));
  SIM_TRY(find(peer, &other));
  if (value == nullptr || device == other) return CUDA_ERROR_INVALID_VALUE;
  *value =
      which == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED || which == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
