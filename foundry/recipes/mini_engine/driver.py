"""A small ctypes client of the CUDA driver: loads libcuda.so.1 as any client does and turns errors into exceptions."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

P = c_void_p  # handles and host pointers
D = c_uint64  # CUdeviceptr
OUT = POINTER(c_void_p)
OUT_D = POINTER(c_uint64)
OUT_INT = POINTER(c_int)
OUT_SIZE = POINTER(c_size_t)

# What cuGetProcAddress is asked for: the newest interface of every function up to CUDA 12.8.
PROC_ADDRESS_VERSION = 12080

# Exported symbol and argument types of every function in use.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (OUT_INT,),
    "cuDeviceGetCount": (OUT_INT,),
    "cuDeviceGet": (OUT_INT, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (OUT_INT, c_int, c_int),
    "cuDeviceTotalMem_v2": (OUT_SIZE, c_int),
    "cuDevicePrimaryCtxRetain": (OUT, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (P,),
    "cuCtxGetCurrent": (OUT,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (OUT_SIZE, OUT_SIZE),
    "cuMemAlloc_v2": (OUT_D, c_size_t),
    "cuMemFree_v2": (D,),
    "cuMemHostAlloc": (OUT, c_size_t, c_uint),
    "cuMemFreeHost": (P,),
    "cuMemcpyHtoD_v2": (D, P, c_size_t),
    "cuMemcpyDtoH_v2": (P, D, c_size_t),
    "cuMemcpyHtoDAsync_v2": (D, P, c_size_t, P),
    "cuMemcpyDtoHAsync_v2": (P, D, c_size_t, P),
    "cuMemcpyDtoDAsync_v2": (D, D, c_size_t, P),
    "cuMemsetD8Async": (D, c_ubyte, c_size_t, P),
    "cuMemsetD32Async": (D, c_uint, c_size_t, P),
    "cuStreamCreateWithPriority": (OUT, c_uint, c_int),
    "cuStreamDestroy_v2": (P,),
    "cuStreamSynchronize": (P,),
    "cuStreamWaitEvent": (P, P, c_uint),
    "cuEventCreate": (OUT, c_uint),
    "cuEventDestroy_v2": (P,),
    "cuEventRecord": (P, P),
    "cuEventSynchronize": (P,),
    "cuLibraryLoadData": (OUT, P, P, P, c_uint, P, P, c_uint),
    "cuLibraryUnload": (P,),
    "cuLibraryGetKernel": (OUT, P, c_char_p),
    "cuLibraryGetGlobal": (OUT_D, OUT_SIZE, P, c_char_p),
    "cuKernelGetFunction": (OUT, P),
    "cuModuleLoadData": (OUT, P),
    "cuModuleUnload": (P,),
    "cuModuleGetFunction": (OUT, P, c_char_p),
    "cuModuleGetGlobal_v2": (OUT_D, OUT_SIZE, P, c_char_p),
    "cuFuncGetAttribute": (OUT_INT, c_int, P),
    "cuFuncSetAttribute": (P, c_int, c_int),
    "cuLaunchKernel": (P, *[c_uint] * 7, P, P, P),
    "cuLaunchKernelEx": (P, P, P, P),
    "cuThreadExchangeStreamCaptureMode": (OUT_INT,),
    "cuStreamBeginCapture_v2": (P, c_int),
    "cuStreamEndCapture": (P, OUT),
    "cuStreamIsCapturing": (P, OUT_INT),
    "cuGraphGetNodes": (P, OUT, OUT_SIZE),
    "cuGraphInstantiateWithFlags": (OUT, P, c_uint64),
    "cuGraphLaunch": (P, P),
    "cuGraphExecDestroy": (P,),
    "cuGraphDestroy": (P,),
}

DEVICE_MAX_SHARED_PER_BLOCK_OPTIN = 97
DEVICE_SM_COUNT = 16
DEVICE_CC_MAJOR = 75
DEVICE_CC_MINOR = 76
FUNC_MAX_DYNAMIC_SHARED = 8
CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED = 0, 1, 2
# Flags that torch instantiates with: free on launch, node priorities.
INSTANTIATE_FLAGS = 0x9
STREAM_NON_BLOCKING = 1
EVENT_DISABLE_TIMING = 2
LAUNCH_ATTRIBUTE_CLUSTER = 4
LAUNCH_PARAM_BUFFER_POINTER = 1
LAUNCH_PARAM_BUFFER_SIZE = 2
ERROR_OUT_OF_MEMORY = 2


class DriverError(RuntimeError):
    """A driver call failed. `function`, `code` (CUresult) and the driver's own name and text of it."""

    def __init__(self, function: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{function} failed with {name} ({code}): {text}")
        self.function = function
        self.code = code
        self.name = name
        self.text = text


class _ClusterDim(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint), ("pad", ctypes.c_char * 52)]


class _LaunchAttribute(ctypes.Structure):
    _fields_ = [("id", c_int), ("pad", c_int), ("value", _ClusterDim)]


class _LaunchConfig(ctypes.Structure):
    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    ]


Dim3 = tuple[int, int, int]


class Driver:
    """The driver functions in use, one method each; failures raise DriverError.

    `route` says how functions are found: "dlsym" by their exported symbol, "proc_address" through
    cuGetProcAddress_v2, as the CUDA runtime does.
    """

    def __init__(self, route: str = "dlsym", library: str = "libcuda.so.1") -> None:
        if route not in ("dlsym", "proc_address"):
            raise ValueError(f"route must be 'dlsym' or 'proc_address', not {route!r}")
        self._library = ctypes.CDLL(library)
        self._functions: dict[str, Callable[..., int]] = {}
        self._error_name = self._error_text("cuGetErrorName")
        self._error_string = self._error_text("cuGetErrorString")
        for symbol, arguments in SIGNATURES.items():
            address = self._proc_address(symbol) if route == "proc_address" else self._symbol(symbol)
            self._functions[symbol] = ctypes.CFUNCTYPE(c_int, *arguments)(address)

    # --- finding and calling functions

    def _symbol(self, symbol: str) -> int:
        address = ctypes.cast(getattr(self._library, symbol), c_void_p).value
        assert address is not None  # getattr raises AttributeError for a missing symbol
        return address

    def _proc_address(self, symbol: str) -> int:
        name = re.sub(r"_v\d+$", "", symbol)
        address, status = c_void_p(), c_int()
        code = self._library.cuGetProcAddress_v2(
            c_char_p(name.encode()), byref(address), c_int(PROC_ADDRESS_VERSION), c_uint64(0), byref(status)
        )
        if code != 0 or not address.value:
            raise DriverError(
                f"cuGetProcAddress({name})", code, self._error_name(code), f"symbol status {status.value}"
            )
        return address.value

    def _error_text(self, function: str) -> Callable[[int], str]:
        def text(code: int) -> str:
            result = c_char_p()
            if getattr(self._library, function)(c_int(code), byref(result)) != 0 or result.value is None:
                return f"unknown error {code}"
            return result.value.decode()

        return text

    def call(self, symbol: str, *arguments: Any) -> None:
        """Calls one function of SIGNATURES by its exported symbol."""
        code = self._functions[symbol](*arguments)
        if code != 0:
            raise DriverError(symbol, code, self._error_name(code), self._error_string(code))

    def _handle(self, symbol: str, *arguments: Any) -> int:
        handle = c_void_p()
        self.call(symbol, byref(handle), *arguments)
        return handle.value or 0

    def _int(self, symbol: str, *arguments: Any) -> int:
        value = c_int()
        self.call(symbol, byref(value), *arguments)
        return value.value

    # --- device and context

    def init(self) -> None:
        self.call("cuInit", 0)

    def version(self) -> int:
        return self._int("cuDriverGetVersion")

    def device(self, ordinal: int = 0) -> int:
        return self._int("cuDeviceGet", ordinal)

    def device_count(self) -> int:
        return self._int("cuDeviceGetCount")

    def device_name(self, device: int) -> str:
        buffer = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", buffer, 256, device)
        return buffer.value.decode()

    def device_attribute(self, attribute: int, device: int) -> int:
        return self._int("cuDeviceGetAttribute", attribute, device)

    def primary_context(self, device: int) -> int:
        """Retains the primary context and makes it current on this thread."""
        context = self._handle("cuDevicePrimaryCtxRetain", device)
        self.set_current(context)
        return context

    def release_primary_context(self, device: int) -> None:
        self.call("cuDevicePrimaryCtxRelease_v2", device)

    def set_current(self, context: int) -> None:
        self.call("cuCtxSetCurrent", context)

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    # --- memory

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of the current device."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def malloc(self, nbytes: int) -> int:
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), nbytes)
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", address)

    def host_alloc(self, nbytes: int) -> int:
        return self._handle("cuMemHostAlloc", nbytes, 0)

    def host_free(self, address: int) -> None:
        self.call("cuMemFreeHost", address)

    def upload(self, address: int, data: bytes) -> None:
        """Copies host bytes to the device and waits."""
        self.call("cuMemcpyHtoD_v2", address, ctypes.cast(c_char_p(data), c_void_p), len(data))

    def download(self, address: int, nbytes: int) -> bytes:
        """Copies device bytes to the host and waits."""
        buffer = ctypes.create_string_buffer(nbytes)
        self.call("cuMemcpyDtoH_v2", ctypes.cast(buffer, c_void_p), address, nbytes)
        return buffer.raw

    def upload_async(self, address: int, host_address: int, nbytes: int, stream: int) -> None:
        self.call("cuMemcpyHtoDAsync_v2", address, host_address, nbytes, stream)

    def download_async(self, host_address: int, address: int, nbytes: int, stream: int) -> None:
        self.call("cuMemcpyDtoHAsync_v2", host_address, address, nbytes, stream)

    def copy_async(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self.call("cuMemcpyDtoDAsync_v2", to, source, nbytes, stream)

    def memset8_async(self, address: int, value: int, nbytes: int, stream: int) -> None:
        self.call("cuMemsetD8Async", address, value, nbytes, stream)

    def memset32_async(self, address: int, value: int, words: int, stream: int) -> None:
        self.call("cuMemsetD32Async", address, value, words, stream)

    # --- streams and events

    def stream(self, priority: int = 0) -> int:
        return self._handle("cuStreamCreateWithPriority", STREAM_NON_BLOCKING, priority)

    def stream_destroy(self, stream: int) -> None:
        self.call("cuStreamDestroy_v2", stream)

    def stream_synchronize(self, stream: int) -> None:
        self.call("cuStreamSynchronize", stream)

    def stream_wait(self, stream: int, event: int) -> None:
        self.call("cuStreamWaitEvent", stream, event, 0)

    def event(self) -> int:
        return self._handle("cuEventCreate", EVENT_DISABLE_TIMING)

    def event_destroy(self, event: int) -> None:
        self.call("cuEventDestroy_v2", event)

    def event_record(self, event: int, stream: int) -> None:
        self.call("cuEventRecord", event, stream)

    def event_synchronize(self, event: int) -> None:
        self.call("cuEventSynchronize", event)

    # --- code

    def library_load(self, image: int) -> int:
        """Loads the image at host address `image`."""
        return self._handle("cuLibraryLoadData", image, None, None, 0, None, None, 0)

    def library_unload(self, library: int) -> None:
        self.call("cuLibraryUnload", library)

    def library_kernel(self, library: int, name: str) -> int:
        return self._handle("cuLibraryGetKernel", library, name.encode())

    def library_global(self, library: int, name: str) -> tuple[int, int]:
        """Address and bytes of a module variable."""
        return self._global("cuLibraryGetGlobal", library, name)

    def kernel_function(self, kernel: int) -> int:
        return self._handle("cuKernelGetFunction", kernel)

    def module_load(self, image: int) -> int:
        """Loads the image at host address `image` into the current context."""
        return self._handle("cuModuleLoadData", image)

    def module_unload(self, module: int) -> None:
        self.call("cuModuleUnload", module)

    def module_function(self, module: int, name: str) -> int:
        return self._handle("cuModuleGetFunction", module, name.encode())

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        """Address and bytes of a module variable."""
        return self._global("cuModuleGetGlobal_v2", module, name)

    def _global(self, symbol: str, owner: int, name: str) -> tuple[int, int]:
        address, nbytes = c_uint64(), c_size_t()
        self.call(symbol, byref(address), byref(nbytes), owner, name.encode())
        return address.value, nbytes.value

    def function_attribute(self, function: int, attribute: int) -> int:
        return self._int("cuFuncGetAttribute", attribute, function)

    def set_function_attribute(self, function: int, attribute: int, value: int) -> None:
        self.call("cuFuncSetAttribute", function, attribute, value)

    def launch(
        self,
        function: int,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[Any],
        stream: int,
        shared_bytes: int = 0,
        cluster: int = 1,
        packed: bool = False,
    ) -> None:
        """Launches a kernel. Arguments are ctypes values, in order.

        `packed` hands them over as one buffer (`extra`), as cuBLAS does, instead of kernelParams. `cluster` is the
        cluster's size in x; 1 means no cluster attribute.
        """
        pointers: Any = None
        extra: Any = None
        if packed:
            buffer = _pack(arguments)
            size = c_size_t(len(buffer))
            extra = (c_void_p * 5)(
                LAUNCH_PARAM_BUFFER_POINTER,
                ctypes.addressof(buffer),
                LAUNCH_PARAM_BUFFER_SIZE,
                ctypes.addressof(size),
                None,
            )
        else:
            pointers = (c_void_p * max(1, len(arguments)))(*[ctypes.addressof(a) for a in arguments])
        if cluster == 1:
            self.call("cuLaunchKernel", function, *grid, *block, shared_bytes, stream, pointers, extra)
            return
        attribute = _LaunchAttribute(LAUNCH_ATTRIBUTE_CLUSTER, 0, _ClusterDim(cluster, 1, 1))
        config = _LaunchConfig(
            (c_uint * 3)(*grid), (c_uint * 3)(*block), shared_bytes, stream, ctypes.addressof(attribute), 1
        )
        self.call("cuLaunchKernelEx", ctypes.addressof(config), function, pointers, extra)

    # --- capture and graphs

    def begin_capture(self, stream: int, mode: int = CAPTURE_THREAD_LOCAL) -> None:
        self.call("cuStreamBeginCapture_v2", stream, mode)

    def end_capture(self, stream: int) -> int:
        """Ends the capture and returns the graph."""
        return self._out_last("cuStreamEndCapture", stream)

    def _out_last(self, symbol: str, owner: int) -> int:
        handle = c_void_p()
        self.call(symbol, owner, byref(handle))
        return handle.value or 0

    def is_capturing(self, stream: int) -> bool:
        status = c_int()
        self.call("cuStreamIsCapturing", stream, byref(status))
        return status.value != 0

    @contextmanager
    def capture_mode(self, mode: int) -> Iterator[None]:
        """Sets this thread's capture mode for the duration, as an allocator does around cudaMalloc."""
        value = c_int(mode)
        self.call("cuThreadExchangeStreamCaptureMode", byref(value))
        try:
            yield
        finally:
            self.call("cuThreadExchangeStreamCaptureMode", byref(value))

    def graph_node_count(self, graph: int) -> int:
        count = c_size_t()
        self.call("cuGraphGetNodes", graph, None, byref(count))
        return count.value

    def instantiate(self, graph: int, flags: int = INSTANTIATE_FLAGS) -> int:
        return self._handle("cuGraphInstantiateWithFlags", graph, flags)

    def graph_launch(self, graph_exec: int, stream: int) -> None:
        self.call("cuGraphLaunch", graph_exec, stream)

    def exec_destroy(self, graph_exec: int) -> None:
        self.call("cuGraphExecDestroy", graph_exec)

    def graph_destroy(self, graph: int) -> None:
        self.call("cuGraphDestroy", graph)


def _pack(arguments: Sequence[Any]) -> ctypes.Array[ctypes.c_char]:
    """The arguments as one buffer, each at its own alignment."""
    data = bytearray()
    for argument in arguments:
        data += bytes(-len(data) % ctypes.alignment(argument))
        data += bytes(argument)
    return ctypes.create_string_buffer(bytes(data), len(data))
