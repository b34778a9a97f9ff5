"""A caching allocator with the sizes and rules of torch's: what an engine's allocations look like to the driver.

Requests are rounded to 512 bytes. Up to 1 MiB they come out of 2 MiB segments, up to 10 MiB out of 20 MiB segments,
larger ones get a segment of their own in steps of 2 MiB. Free blocks are reused on the stream that they were allocated
for. A pool keeps its segments to itself and may get them from a `SegmentSource` of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from foundry.recipes.mini_engine.driver import CAPTURE_RELAXED, ERROR_OUT_OF_MEMORY, Driver, DriverError

MIB = 1 << 20
BLOCK_BYTES = 512
SMALL_BYTES = 1 * MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_LIMIT = 10 * MIB
ROUND_LARGE = 2 * MIB

PoolId = int
DEFAULT_POOL: PoolId = 0


class SegmentSource(Protocol):
    """Where segments come from. `malloc` returns 0 or raises a DriverError when there is no memory."""

    def malloc(self, nbytes: int, stream: int) -> int: ...

    def free(self, address: int, nbytes: int, stream: int) -> None: ...


class DriverSegments:
    """Segments straight from cuMemAlloc."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def malloc(self, nbytes: int, stream: int) -> int:
        return self._driver.malloc(nbytes)

    def free(self, address: int, nbytes: int, stream: int) -> None:
        self._driver.free(address)


@dataclass(eq=False)
class Block:
    """A piece of a segment. `requested` is 0 while it is free."""

    address: int
    nbytes: int
    segment: Segment
    requested: int = 0
    active: bool = False


@dataclass(eq=False)
class Segment:
    """One allocation of a source, divided into blocks in address order."""

    address: int
    nbytes: int
    stream: int
    pool: Pool
    small: bool
    blocks: list[Block] = field(default_factory=list)


@dataclass(eq=False)
class Pool:
    """Segments of one purpose. `uses` counts who may still allocate from it; with 0 its free segments can go."""

    id: PoolId
    source: SegmentSource
    segments: list[Segment] = field(default_factory=list)
    uses: int = 1


@dataclass(frozen=True)
class BlockInfo:
    """A block in a snapshot."""

    address: int
    nbytes: int
    requested: int
    active: bool


@dataclass(frozen=True)
class SegmentInfo:
    """A segment in a snapshot; `stream` is the stream that its blocks belong to."""

    address: int
    nbytes: int
    pool: PoolId
    stream: int
    blocks: tuple[BlockInfo, ...]


class OutOfMemory(MemoryError):
    """No memory for a segment, after the cache was given back."""


class CachingAllocator:
    """Allocator of one device; every method may be called from any thread."""

    def __init__(self, driver: Driver, source: SegmentSource | None = None) -> None:
        self._driver = driver
        self._lock = threading.RLock()
        self._pools: dict[PoolId, Pool] = {DEFAULT_POOL: Pool(DEFAULT_POOL, source or DriverSegments(driver))}
        self._next_pool = 1
        # Active routes, oldest first: the oldest matching one takes an allocation.
        self._routes: list[tuple[PoolId, Callable[[int], bool]]] = []

    # --- pools

    def create_pool(self, source: SegmentSource | None = None) -> PoolId:
        """A new pool, with segments from `source` (the default pool's source if None)."""
        with self._lock:
            pool = Pool(self._next_pool, source or self._pools[DEFAULT_POOL].source)
            self._pools[pool.id] = pool
            self._next_pool += 1
            return pool.id

    def release_pool(self, pool: PoolId) -> None:
        """Gives up one use of the pool; after the last, empty_cache returns its free segments."""
        with self._lock:
            self._pools[pool].uses -= 1

    def retain_pool(self, pool: PoolId) -> None:
        """Adds one use, as every captured graph does."""
        with self._lock:
            self._pools[pool].uses += 1

    def begin_pool(self, pool: PoolId, matches: Callable[[int], bool] | None = None) -> None:
        """Routes allocations whose stream `matches` (all of all threads, if None) to the pool, until end_pool."""
        with self._lock:
            if pool not in self._pools:
                raise ValueError(f"there is no pool {pool}")
            if any(active == pool for active, _ in self._routes):
                raise RuntimeError(f"allocations already go to pool {pool}")
            self._routes.append((pool, matches or (lambda stream: True)))

    def end_pool(self, pool: PoolId) -> None:
        """Ends begin_pool."""
        with self._lock:
            for i, (active, _) in enumerate(self._routes):
                if active == pool:
                    del self._routes[i]
                    return
            raise RuntimeError(f"allocations do not go to pool {pool}")

    @contextmanager
    def use_pool(self, pool: PoolId, matches: Callable[[int], bool] | None = None) -> Iterator[None]:
        """begin_pool and end_pool around a block."""
        self.begin_pool(pool, matches)
        try:
            yield
        finally:
            self.end_pool(pool)

    # --- blocks

    def allocate(self, nbytes: int, stream: int) -> Block:
        """A block of at least `nbytes` for work on `stream`. Raises OutOfMemory."""
        rounded = max(BLOCK_BYTES, _round_up(nbytes, BLOCK_BYTES))
        small = rounded <= SMALL_BYTES
        with self._lock:
            pool = self._route(stream)
            best = self._best_fit(pool, rounded, small, stream)
            if best is None:
                best = self._new_segment(pool, rounded, small, stream).blocks[0]
            rest = best.nbytes - rounded
            if rest >= BLOCK_BYTES if small else rest > SMALL_BYTES:
                blocks = best.segment.blocks
                blocks.insert(blocks.index(best) + 1, Block(best.address + rounded, rest, best.segment))
                best.nbytes = rounded
            best.active = True
            best.requested = nbytes
            return best

    def free(self, block: Block) -> None:
        """Returns a block; its memory may be handed out again on the same stream at once."""
        with self._lock:
            if not block.active:
                raise RuntimeError(f"the block at {block.address:#x} is freed twice")
            block.active = False
            block.requested = 0
            blocks = block.segment.blocks
            at = blocks.index(block)
            if at + 1 < len(blocks) and not blocks[at + 1].active:
                block.nbytes += blocks.pop(at + 1).nbytes
            if at > 0 and not blocks[at - 1].active:
                blocks[at - 1].nbytes += blocks.pop(at).nbytes

    def empty_cache(self, pool: PoolId | None = None) -> int:
        """Gives wholly free segments back to their source; returns their bytes.

        Without `pool`: those of the default pool and of pools that nobody uses any more.
        """
        with self._lock:
            released = 0
            for each in list(self._pools.values()):
                if each.id == pool or (pool is None and (each.id == DEFAULT_POOL or each.uses <= 0)):
                    released += self._release_free(each)
                    if each.uses <= 0 and not each.segments and each.id != DEFAULT_POOL:
                        del self._pools[each.id]
            return released

    def snapshot(self) -> list[SegmentInfo]:
        """All segments with their blocks, by address."""
        with self._lock:
            found = [
                SegmentInfo(
                    s.address,
                    s.nbytes,
                    pool.id,
                    s.stream,
                    tuple(BlockInfo(b.address, b.nbytes, b.requested, b.active) for b in s.blocks),
                )
                for pool in self._pools.values()
                for s in pool.segments
            ]
        return sorted(found, key=lambda s: s.address)

    def pool_of(self, block: Block) -> PoolId:
        """The pool a block belongs to."""
        return block.segment.pool.id

    # --- inside

    def _route(self, stream: int) -> Pool:
        for pool, matches in self._routes:
            if matches(stream):
                return self._pools[pool]
        return self._pools[DEFAULT_POOL]

    def _best_fit(self, pool: Pool, nbytes: int, small: bool, stream: int) -> Block | None:
        fits = [
            block
            for segment in pool.segments
            if segment.small == small and segment.stream == stream
            for block in segment.blocks
            if not block.active and block.nbytes >= nbytes
        ]
        return min(fits, key=lambda block: (block.nbytes, block.address), default=None)

    def _new_segment(self, pool: Pool, nbytes: int, small: bool, stream: int) -> Segment:
        if small:
            size = SMALL_SEGMENT
        elif nbytes < LARGE_LIMIT:
            size = LARGE_SEGMENT
        else:
            size = _round_up(nbytes, ROUND_LARGE)
        address = self._malloc(pool, size, stream)
        if address == 0:
            for each in self._pools.values():
                self._release_free(each)
            address = self._malloc(pool, size, stream)
        if address == 0:
            raise OutOfMemory(f"no memory for a segment of {size} bytes (a request of {nbytes})")
        segment = Segment(address, size, stream, pool, small)
        segment.blocks.append(Block(address, size, segment))
        pool.segments.append(segment)
        return segment

    def _malloc(self, pool: Pool, nbytes: int, stream: int) -> int:
        # An allocation inside a capture is legal in relaxed mode only.
        with self._driver.capture_mode(CAPTURE_RELAXED):
            try:
                return pool.source.malloc(nbytes, stream)
            except DriverError as error:
                if error.code != ERROR_OUT_OF_MEMORY:
                    raise
                return 0

    def _release_free(self, pool: Pool) -> int:
        free = [s for s in pool.segments if len(s.blocks) == 1 and not s.blocks[0].active]
        for segment in free:
            pool.segments.remove(segment)
            pool.source.free(segment.address, segment.nbytes, segment.stream)
        return sum(segment.nbytes for segment in free)


def _round_up(value: int, step: int) -> int:
    return (value + step - 1) // step * step
