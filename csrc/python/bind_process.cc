// Owner, diagnoses, devices and plain device memory.
#include "csrc/base/text.h"
#include "csrc/python/bind.h"
#include "csrc/session/process.h"

namespace foundry::python {
namespace {

namespace py = pybind11;
using session::Process;

struct OwnerInfo {
  std::string name, build;
  int sm_target = 0;
};

struct DeviceInfo {
  int ordinal = 0, major = 0, minor = 0, sm_count = 0, driver_version = 0;
  std::string name, uuid;
  uint64_t total_memory = 0;
};

Result<DeviceInfo> device_info(int ordinal) {
  FOUNDRY_ASSIGN(Process * process, Process::get());
  const driver::Driver& driver = process->driver();
  DeviceInfo info;
  info.ordinal = ordinal;
  CUdevice device = 0;
  FOUNDRY_CU(driver, cuDeviceGet, &device, ordinal);
  char name[256] = {};
  FOUNDRY_CU(driver, cuDeviceGetName, name, sizeof name - 1, device);
  info.name = name;
  FOUNDRY_CU(driver, cuDeviceGetAttribute, &info.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  FOUNDRY_CU(driver, cuDeviceGetAttribute, &info.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  FOUNDRY_CU(driver, cuDeviceGetAttribute, &info.sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  size_t total = 0;
  FOUNDRY_CU(driver, cuDeviceTotalMem, &total, device);
  info.total_memory = total;
  FOUNDRY_CU(driver, cuDriverGetVersion, &info.driver_version);
  CUuuid uuid{};
  FOUNDRY_CU(driver, cuDeviceGetUuid, &uuid, device);
  for (const char byte : uuid.bytes)
    info.uuid += format("%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return info;
}

Result<int> device_count() {
  FOUNDRY_ASSIGN(Process * process, Process::get());
  int count = 0;
  FOUNDRY_CU(process->driver(), cuDeviceGetCount, &count);
  return count;
}

// Device memory belongs to whatever context is current on this thread; where none is, the first device's.
template <class Work>
Status with_context(int device, Work&& work) {
  FOUNDRY_ASSIGN(Process * process, Process::get());
  CUcontext context = nullptr;
  FOUNDRY_CU(process->driver(), cuCtxGetCurrent, &context);
  if (device >= 0 || context == nullptr) {
    FOUNDRY_ASSIGN(context, process->context(device >= 0 ? device : 0));
  }
  driver::ScopedContext scope(process->driver(), context);
  FOUNDRY_TRY(scope.status());
  return work(process->driver());
}

}  // namespace

void bind_process(py::module_& module) {
  py::class_<OwnerInfo>(module, "Owner")
      .def_readonly("name", &OwnerInfo::name)
      .def_readonly("build", &OwnerInfo::build)
      .def_readonly("sm_target", &OwnerInfo::sm_target)
      .def("__repr__", [](const OwnerInfo& o) { return format("<Owner %s %s>", o.name.c_str(), o.build.c_str()); });
  module.def("owner", [] {
    const Process* process = unlocked([] { return Process::get(); });
    return OwnerInfo{process->abi().owner, process->abi().build, process->abi().sm_target};
  });
  module.def("diagnoses", [] { return unlocked([] { return Process::get(); })->diagnoses(); });

  py::class_<DeviceInfo>(module, "DeviceInfo")
      .def_readonly("ordinal", &DeviceInfo::ordinal)
      .def_readonly("name", &DeviceInfo::name)
      .def_readonly("major", &DeviceInfo::major)
      .def_readonly("minor", &DeviceInfo::minor)
      .def_readonly("sm_count", &DeviceInfo::sm_count)
      .def_readonly("total_memory", &DeviceInfo::total_memory)
      .def_readonly("driver_version", &DeviceInfo::driver_version)
      .def_readonly("uuid", &DeviceInfo::uuid);
  module.def("driver_available", []() -> std::optional<std::string> {
    const auto process = Process::get();
    if (!process.ok()) return process.error().text;
    return std::nullopt;
  });
  module.def("device_count", [] { return unlocked(device_count); });
  module.def(
      "device_info", [](int ordinal) { return unlocked([=] { return device_info(ordinal); }); }, py::arg("ordinal"));

  module.def(
      "buffer_span",
      [](const py::object& memory) {
        Py_buffer view;
        if (PyObject_GetBuffer(memory.ptr(), &view, PyBUF_SIMPLE) != 0) {
          PyErr_Clear();
          throw Failure{Error{ErrorKind::invalid, 0,
                              format("a %s is no host memory in one piece: give a contiguous CPU tensor or an object "
                                     "with the buffer protocol",
                                     Py_TYPE(memory.ptr())->tp_name)}};
        }
        const std::pair<uint64_t, uint64_t> span{reinterpret_cast<uint64_t>(view.buf), view.len};
        PyBuffer_Release(&view);
        return span;
      },
      py::arg("memory"));

  module.def(
      "read_memory",
      [](uint64_t address, uint64_t nbytes) {
        std::string data(nbytes, '\0');
        unlocked([&] {
          return with_context(-1, [&](const driver::Driver& driver) -> Status {
            FOUNDRY_CU(driver, cuMemcpyDtoH, data.data(), address, nbytes);
            return success();
          });
        });
        return py::bytes(data);
      },
      py::arg("address"), py::arg("nbytes"));
  module.def(
      "write_memory",
      [](uint64_t address, const py::bytes& data) {
        const std::string_view bytes = data;
        unlocked([&] {
          return with_context(-1, [&](const driver::Driver& driver) -> Status {
            FOUNDRY_CU(driver, cuMemcpyHtoD, address, bytes.data(), bytes.size());
            return success();
          });
        });
      },
      py::arg("address"), py::arg("data"));
  module.def(
      "copy_memory",
      [](uint64_t destination, uint64_t source, uint64_t nbytes) {
        unlocked([&] {
          return with_context(-1, [&](const driver::Driver& driver) -> Status {
            FOUNDRY_CU(driver, cuMemcpyDtoD, destination, source, nbytes);
            FOUNDRY_CU(driver, cuCtxSynchronize);
            return success();
          });
        });
      },
      py::arg("destination"), py::arg("source"), py::arg("nbytes"));
  module.def(
      "synchronize",
      [](int device) {
        unlocked([&] {
          return with_context(device, [&](const driver::Driver& driver) -> Status {
            FOUNDRY_CU(driver, cuCtxSynchronize);
            return success();
          });
        });
      },
      py::arg("device"));
}

}  // namespace foundry::python
