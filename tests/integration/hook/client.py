"""A CUDA client without packages, for children of the tests: driver functions by each route that leads to them."""

from __future__ import annotations

import ctypes
import json
from typing import Any

Function = Any


class Driver:
    """Functions of libcuda.so.1 by one route: "dlsym", "getproc" (cuGetProcAddress_v2) or "getproc1" (cuGetProcAddress)."""

    def __init__(self, route: str, version: int = 13000, flags: int = 0) -> None:
        self.route, self.version, self.flags = route, version, flags
        self.library = ctypes.CDLL("libcuda.so.1")

    def query(self, base: str, version: int | None = None, flags: int | None = None) -> tuple[int, int, int | None]:
        """(CUresult, address, status) of cuGetProcAddress; the old spelling has no status."""
        address, status = ctypes.c_void_p(), ctypes.c_int(-1)
        arguments: list[Any] = [base.encode(), ctypes.byref(address), self.version if version is None else version]
        arguments.append(ctypes.c_uint64(self.flags if flags is None else flags))
        if self.route == "getproc1":
            return self.library.cuGetProcAddress(*arguments), address.value or 0, None
        result = self.library.cuGetProcAddress_v2(*arguments, ctypes.byref(status))
        return result, address.value or 0, status.value

    def function(self, base: str, symbol: str | None = None) -> Function:
        if self.route == "dlsym":
            return self.library[symbol or base]
        result, address, _ = self.query(base)
        assert result == 0 and address, f"cuGetProcAddress({base}): {result}"
        return ctypes.CFUNCTYPE(ctypes.c_int)(address)

    def call(self, base: str, *arguments: Any, symbol: str | None = None) -> int:
        return int(self.function(base, symbol)(*arguments))

    def checked(self, base: str, *arguments: Any, symbol: str | None = None) -> None:
        result = self.call(base, *arguments, symbol=symbol)
        assert result == 0, f"{base}: {result}"

    def start(self, device: int = 0) -> None:
        """cuInit, and the primary context of a device made current."""
        context = ctypes.c_void_p()
        self.checked("cuInit", 0)
        self.checked("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.checked("cuCtxSetCurrent", context)

    def alloc(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.checked("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(size), symbol="cuMemAlloc_v2")
        return address.value

    def free(self, address: int) -> int:
        return self.call("cuMemFree", ctypes.c_uint64(address), symbol="cuMemFree_v2")

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.checked("cuStreamCreate", ctypes.byref(stream), 1)
        return stream


class Probe:
    """The owner's table as the hook exports it (probe.c)."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.probe_json.restype = ctypes.c_void_p
        self.library.probe_driver_symbol.restype = ctypes.c_void_p

    def state(self) -> Any:
        return json.loads(ctypes.string_at(self.library.probe_json()).decode())


def answer(value: Any) -> None:
    print(json.dumps(value))
