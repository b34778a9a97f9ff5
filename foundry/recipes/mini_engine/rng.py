"""The default random number generator, with torch's behaviour under capture.

Outside a capture a kernel gets seed and offset by value. A captured launch gets the addresses of two 8-byte words
instead; they are written before every replay. The words exist while any graph is registered: the first registration
allocates them (two 8-byte arrays, which is a 2 MiB segment where the stream has none), the last one frees them.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foundry.recipes.mini_engine.arrays import DeviceArray
    from foundry.recipes.mini_engine.device import Device


class PhiloxState(ctypes.Structure):
    """Argument of random kernels: values, or pointers where `captured`."""

    _fields_ = [
        ("seed", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("offset_in_graph", ctypes.c_uint32),
        ("captured", ctypes.c_bool),
    ]


class Generator:
    """Seed and offset of one device. Offsets advance in multiples of 4, one Philox call each."""

    def __init__(self, device: Device, seed: int = 0) -> None:
        self._device = device
        self._registered = 0
        self._capturing = False
        self._offset_in_graph = 0
        self.seed = seed
        self.offset = 0
        self.seed_word: DeviceArray | None = None
        self.offset_word: DeviceArray | None = None

    def manual_seed(self, seed: int) -> None:
        """Starts the sequence of `seed` (64 bits) anew."""
        self.seed = seed & (1 << 64) - 1
        self.offset = 0

    def register(self) -> None:
        """A graph is about to be captured that may use this generator."""
        if self._registered == 0:
            self.seed_word = self._device.empty((1,), "uint64")
            self.offset_word = self._device.empty((1,), "uint64")
        self._registered += 1

    def unregister(self) -> None:
        """That graph is gone."""
        self._registered -= 1
        if self._registered == 0:
            self.seed_word = self.offset_word = None

    def begin_capture(self) -> None:
        """Random launches from now on read the words."""
        self._capturing = True
        self._offset_in_graph = 0

    def end_capture(self) -> int:
        """Ends that; returns by how much one replay advances the offset."""
        self._capturing = False
        return self._offset_in_graph

    def state(self, increment: int) -> PhiloxState:
        """The argument for a launch that consumes `increment` numbers per thread."""
        increment = (increment + 3) // 4 * 4
        if self._capturing:
            assert self.seed_word is not None and self.offset_word is not None  # register() came first
            state = PhiloxState(self.seed_word.address, self.offset_word.address, self._offset_in_graph, True)
            self._offset_in_graph += increment
        else:
            state = PhiloxState(self.seed, self.offset, 0, False)
            self.offset += increment
        return state

    def before_replay(self, increment: int, stream: int) -> None:
        """Writes the words on `stream` and advances by the graph's increment."""
        if increment == 0:
            return
        assert self.seed_word is not None and self.offset_word is not None  # the graph is registered
        self.write_words(self.seed_word.address, self.offset_word.address, increment, stream)

    def write_words(self, seed_address: int, offset_address: int, increment: int, stream: int) -> None:
        """As before_replay, for words at other addresses (a restored graph's)."""
        for address, value in ((seed_address, self.seed), (offset_address, self.offset)):
            self._device.driver.memset32_async(address, value & 0xFFFFFFFF, 1, stream)
            self._device.driver.memset32_async(address + 4, value >> 32, 1, stream)
        self.offset += increment
