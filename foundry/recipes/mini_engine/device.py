"""One simulated GPU as the engine sees it: context, streams, allocator, generator and arrays."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from foundry.recipes.mini_engine import driver as cuda
from foundry.recipes.mini_engine.allocator import CachingAllocator
from foundry.recipes.mini_engine.arrays import DTYPES, DeviceArray, Storage
from foundry.recipes.mini_engine.rng import Generator


class Device:
    """The device with its primary context, current on the thread that made it."""

    def __init__(self, ordinal: int = 0, route: str = "dlsym") -> None:
        self.driver = cuda.Driver(route)
        self.driver.init()
        self.ordinal = ordinal
        self.handle = self.driver.device(ordinal)
        self.context = self.driver.primary_context(self.handle)
        self.name = self.driver.device_name(self.handle)
        self.sm_count = self.driver.device_attribute(cuda.DEVICE_SM_COUNT, self.handle)
        self.capability = (
            self.driver.device_attribute(cuda.DEVICE_CC_MAJOR, self.handle),
            self.driver.device_attribute(cuda.DEVICE_CC_MINOR, self.handle),
        )
        self.allocator = CachingAllocator(self.driver)
        self.generator = Generator(self)
        self.main_stream = self.driver.stream()
        self._local = threading.local()

    # --- threads and streams

    def use_on_this_thread(self) -> None:
        """Makes the context current; needed once on every other thread."""
        self.driver.set_current(self.context)

    @property
    def stream(self) -> int:
        """The current stream of this thread."""
        return getattr(self._local, "stream", self.main_stream)

    @contextmanager
    def on_stream(self, stream: int) -> Iterator[None]:
        """Makes a stream current on this thread."""
        before = self.stream
        self._local.stream = stream
        try:
            yield
        finally:
            self._local.stream = before

    def synchronize(self) -> None:
        self.driver.synchronize()

    # --- arrays

    def empty(self, shape: Sequence[int], dtype: str = "float32") -> DeviceArray:
        """A new array with arbitrary content, for work on the current stream."""
        nbytes = DTYPES[dtype][0]
        for n in shape:
            nbytes *= n
        block = self.allocator.allocate(nbytes, self.stream)
        allocator = self.allocator
        storage = Storage(self.driver, block.address, nbytes, lambda: allocator.free(block))
        return DeviceArray(storage, shape, dtype)

    def array(self, shape: Sequence[int], values: Sequence[float] | Sequence[int], dtype: str) -> DeviceArray:
        """A new array with this content."""
        return self.empty(shape, dtype).upload(values)

    def zeros(self, shape: Sequence[int], dtype: str = "float32") -> DeviceArray:
        """A new array of zero bytes, set on the current stream."""
        out = self.empty(shape, dtype)
        self.driver.memset8_async(out.address, 0, out.nbytes, self.stream)
        return out

    def adopt(self, address: int, shape: Sequence[int], dtype: str, nbytes: int, owner: object = None) -> DeviceArray:
        """An array over memory that somebody else owns; `owner` lives as long as the array."""
        return DeviceArray(Storage(self.driver, address, nbytes, None, owner), shape, dtype)


class Workspace:
    """Scratch memory that is kept between calls, and freed and allocated anew when a call needs more."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._array: DeviceArray | None = None

    def get(self, elements: int) -> DeviceArray:
        """At least `elements` floats."""
        if self._array is None or self._array.size < elements:
            self._array = None  # the old one first, as cuBLAS workspaces are
            self._array = self._device.empty((elements,))
        return self._array


def argument(value: object) -> object:
    """A launch argument as a ctypes value: arrays as their address, int as int32, float as float32."""
    if isinstance(value, DeviceArray):
        return ctypes.c_uint64(value.address)
    if isinstance(value, bool):
        raise TypeError("pass a ctypes value for a bool")
    if isinstance(value, int):
        return ctypes.c_int32(value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    return value
