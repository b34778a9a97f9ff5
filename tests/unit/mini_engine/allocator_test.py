"""The caching allocator's sizes and rules, which decide what the driver (and the hook) gets to see."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from foundry.recipes.mini_engine.allocator import (
    DEFAULT_POOL,
    MIB,
    Block,
    CachingAllocator,
    OutOfMemory,
)
from foundry.recipes.mini_engine.driver import CAPTURE_RELAXED, DriverError


class Segments:
    """A source that counts; memory ends at `limit`."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.live: dict[int, int] = {}
        self.calls: list[tuple[str, int]] = []
        self.limit = limit
        self._next = 0x1000_0000_0000

    def malloc(self, nbytes: int, stream: int) -> int:
        self.calls.append(("malloc", nbytes))
        if sum(self.live.values()) + nbytes > self.limit:
            raise DriverError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
        address, self._next = self._next, self._next + nbytes
        self.live[address] = nbytes
        return address

    def free(self, address: int, nbytes: int, stream: int) -> None:
        self.calls.append(("free", nbytes))
        assert self.live.pop(address) == nbytes


class ModeOnly:
    """The one thing the allocator asks of the driver."""

    def __init__(self) -> None:
        self.modes: list[int] = []

    @contextmanager
    def capture_mode(self, mode: int) -> Iterator[None]:
        self.modes.append(mode)
        yield


def make(limit: int = 1 << 40) -> tuple[CachingAllocator, Segments]:
    source = Segments(limit)
    return CachingAllocator(cast(Any, ModeOnly()), source), source


@pytest.mark.parametrize(
    ("request_bytes", "segment", "block"),
    [
        (0, 2 * MIB, 512),
        (8, 2 * MIB, 512),
        (513, 2 * MIB, 1024),
        (MIB, 2 * MIB, MIB),
        (MIB + 1, 20 * MIB, MIB + 512),
        (10 * MIB - 512, 20 * MIB, 10 * MIB - 512),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),  # the rest is too small to be split off
    ],
)
def test_segment_and_block_sizes(request_bytes: int, segment: int, block: int) -> None:
    allocator, source = make()
    got = allocator.allocate(request_bytes, 1)
    assert list(source.live.values()) == [segment]
    assert got.nbytes == block


def test_small_blocks_share_a_segment_and_merge_again() -> None:
    allocator, source = make()
    blocks = [allocator.allocate(600, 1) for _ in range(3)]
    assert [b.address - blocks[0].address for b in blocks] == [0, 1024, 2048]
    assert len(source.live) == 1
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    allocator.free(blocks[1])
    (info,) = allocator.snapshot()
    assert [(b.nbytes, b.active) for b in info.blocks] == [(2 * MIB, False)]


def test_best_fit_takes_the_smallest_then_the_lowest() -> None:
    allocator, _ = make()
    blocks = [allocator.allocate(n, 1) for n in (2048, 512, 1024, 512, 1024, 512)]
    for i in (0, 2, 4):
        allocator.free(blocks[i])
    assert allocator.allocate(700, 1).address == blocks[2].address
    assert allocator.allocate(700, 1).address == blocks[4].address
    assert allocator.allocate(1025, 1).address == blocks[0].address


def test_streams_do_not_share_blocks() -> None:
    allocator, source = make()
    block = allocator.allocate(8, 1)
    allocator.free(block)
    assert allocator.allocate(8, 2).address != block.address
    assert allocator.allocate(8, 1).address == block.address
    assert len(source.live) == 2


def test_freeing_twice_is_an_error() -> None:
    allocator, _ = make()
    block = allocator.allocate(8, 1)
    allocator.free(block)
    with pytest.raises(RuntimeError, match="freed twice"):
        allocator.free(block)


def test_pools_keep_their_memory_apart_and_use_their_own_source() -> None:
    allocator, source = make()
    own = Segments()
    pool = allocator.create_pool(own)
    with allocator.use_pool(pool):
        inside = allocator.allocate(8, 1)
    outside = allocator.allocate(8, 1)
    assert allocator.pool_of(inside) == pool
    assert allocator.pool_of(outside) == DEFAULT_POOL
    assert len(own.live) == len(source.live) == 1
    allocator.free(inside)  # goes back to its pool wherever it is freed
    assert allocator.allocate(8, 1).address == outside.address + 512


def test_routes_filter_by_stream_and_the_oldest_wins() -> None:
    allocator, _ = make()
    everything, one_stream = allocator.create_pool(), allocator.create_pool()
    with allocator.use_pool(one_stream, lambda stream: stream == 7):
        assert allocator.pool_of(allocator.allocate(8, 7)) == one_stream
        assert allocator.pool_of(allocator.allocate(8, 1)) == DEFAULT_POOL
        with allocator.use_pool(everything):
            assert allocator.pool_of(allocator.allocate(8, 7)) == one_stream
            assert allocator.pool_of(allocator.allocate(8, 1)) == everything
    with pytest.raises(RuntimeError, match="already"), allocator.use_pool(everything):
        allocator.begin_pool(everything)
    with pytest.raises(RuntimeError, match="do not go"):
        allocator.end_pool(everything)
    with pytest.raises(ValueError, match="no pool 99"):
        allocator.begin_pool(99)


def test_empty_cache_spares_used_blocks_and_used_pools() -> None:
    allocator, source = make()
    pool = allocator.create_pool()
    with allocator.use_pool(pool):
        allocator.free(allocator.allocate(8, 1))
    kept, dropped = allocator.allocate(8, 1), allocator.allocate(3 * MIB, 1)
    allocator.free(dropped)
    assert allocator.empty_cache() == 20 * MIB
    assert sorted(source.live.values()) == [2 * MIB, 2 * MIB]
    allocator.retain_pool(pool)
    allocator.release_pool(pool)
    assert allocator.empty_cache() == 0, "one use is left"
    allocator.release_pool(pool)
    assert allocator.empty_cache() == 2 * MIB
    allocator.free(kept)
    assert allocator.empty_cache() == 2 * MIB
    assert source.live == {}


def test_out_of_memory_first_gives_the_cache_back() -> None:
    allocator, source = make(limit=30 * MIB)
    allocator.free(allocator.allocate(2 * MIB, 1))
    assert allocator.allocate(24 * MIB, 1).nbytes == 24 * MIB
    assert source.calls == [("malloc", 20 * MIB), ("malloc", 24 * MIB), ("free", 20 * MIB), ("malloc", 24 * MIB)]
    with pytest.raises(OutOfMemory, match="segment of 25165824 bytes"):
        allocator.allocate(24 * MIB, 1)
    assert allocator.allocate(8, 1).nbytes == 512, "it goes on afterwards"


def test_another_error_of_the_source_is_not_taken_for_out_of_memory() -> None:
    class Broken(Segments):
        def malloc(self, nbytes: int, stream: int) -> int:
            raise DriverError("cuMemAlloc_v2", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal address")

    allocator = CachingAllocator(cast(Any, ModeOnly()), Broken())
    with pytest.raises(DriverError, match="ILLEGAL_ADDRESS"):
        allocator.allocate(8, 1)


def test_segments_are_made_in_relaxed_capture_mode() -> None:
    driver = ModeOnly()
    allocator = CachingAllocator(cast(Any, driver), Segments())
    allocator.allocate(8, 1)
    assert driver.modes == [CAPTURE_RELAXED]


def test_blocks_never_overlap() -> None:
    source = random.Random(5)
    allocator, _ = make()
    live: list[Block] = []
    for _ in range(600):
        if live and source.random() < 0.45:
            allocator.free(live.pop(source.randrange(len(live))))
        else:
            live.append(allocator.allocate(source.choice([1, 512, 5000, MIB, 3 * MIB, 11 * MIB]), source.randrange(2)))
        spans = sorted((b.address, b.address + max(b.requested, 1)) for b in live)
        assert all(first[1] <= second[0] for first, second in zip(spans, spans[1:], strict=False))
    for segment in allocator.snapshot():
        assert sum(b.nbytes for b in segment.blocks) == segment.nbytes
        assert [b.address for b in segment.blocks] == sorted(b.address for b in segment.blocks)
