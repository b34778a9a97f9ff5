"""Device arrays: shape, strides and a shared storage whose memory goes back to its allocator with its last array."""

from __future__ import annotations

import array
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foundry.recipes.mini_engine.driver import Driver

# Element types: bytes, and the type code of Python's array.
DTYPES: dict[str, tuple[int, str]] = {
    "float32": (4, "f"),
    "int32": (4, "i"),
    "uint32": (4, "I"),
    "int64": (8, "q"),
    "uint64": (8, "Q"),
    "uint8": (1, "B"),
}


class Storage:
    """A piece of device memory that arrays share.

    `release`, if any, is called once when the last array over it is gone. `owner` is any object that must live as
    long as the memory (an archive, for restored memory).
    """

    def __init__(
        self, driver: Driver, address: int, nbytes: int, release: Callable[[], None] | None, owner: object = None
    ) -> None:
        self.driver = driver
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self._release = release

    def move(self, address: int, owner: object) -> None:
        """Points every array of this storage to other memory. The content is not copied.

        The old memory stays allocated for good: graphs, or another storage's content, may be there by now.
        """
        self._release = None
        self.address = address
        self.owner = owner

    def __del__(self) -> None:
        release, self._release = self._release, None
        if release is not None and not sys.is_finalizing():
            release()


class DeviceArray:
    """A strided view of a storage. Sizes, strides and offset are in elements."""

    def __init__(
        self,
        storage: Storage,
        shape: Sequence[int],
        dtype: str = "float32",
        strides: Sequence[int] | None = None,
        offset: int = 0,
    ) -> None:
        self.storage = storage
        self.shape = tuple(shape)
        self.dtype = dtype
        self.strides = tuple(strides) if strides is not None else contiguous_strides(self.shape)
        self.offset = offset
        self.item_bytes, self._code = DTYPES[dtype]
        if (offset + self.extent) * self.item_bytes > storage.nbytes:
            raise ValueError(f"an array of {self.shape} {dtype} does not fit into {storage.nbytes} bytes")

    @property
    def address(self) -> int:
        """Device address of the first element."""
        return self.storage.address + self.offset * self.item_bytes

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def extent(self) -> int:
        """Elements from the first to the end of the last."""
        if self.size == 0:
            return 0
        return 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))

    @property
    def nbytes(self) -> int:
        return self.extent * self.item_bytes

    @property
    def contiguous(self) -> bool:
        return self.strides == contiguous_strides(self.shape)

    def rows(self, first: int, last: int) -> DeviceArray:
        """The view [first:last] along the first axis."""
        if not 0 <= first <= last <= self.shape[0]:
            raise IndexError(f"rows {first}:{last} of an array with {self.shape[0]} rows")
        offset = self.offset + first * self.strides[0]
        return DeviceArray(self.storage, (last - first, *self.shape[1:]), self.dtype, self.strides, offset)

    def reshape(self, *shape: int) -> DeviceArray:
        """A view with another shape of the same size."""
        if not self.contiguous or math.prod(shape) != self.size:
            raise ValueError(f"cannot view {self.shape} as {shape}")
        return DeviceArray(self.storage, shape, self.dtype, None, self.offset)

    def upload(self, values: Sequence[float] | Sequence[int] | bytes) -> DeviceArray:
        """Writes the whole array from the host and waits; returns the array."""
        if not self.contiguous:
            raise ValueError("only a contiguous array can be written")
        data = values if isinstance(values, bytes) else array.array(self._code, values).tobytes()
        if len(data) != self.nbytes:
            raise ValueError(f"{len(data)} bytes given for an array of {self.nbytes}")
        self.storage.driver.upload(self.address, data)
        return self

    def to_bytes(self) -> bytes:
        """The array's bytes, after all work that the context has been given."""
        if not self.contiguous:
            raise ValueError("only a contiguous array can be read")
        self.storage.driver.synchronize()
        return self.storage.driver.download(self.address, self.nbytes) if self.nbytes else b""

    def to_list(self) -> list[float] | list[int]:
        """All elements in order, without nesting."""
        values = array.array(self._code)
        values.frombytes(self.to_bytes())
        return values.tolist()

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, address={self.address:#x})"


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense array, last axis fastest."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)
