"""Copies storages that landed elsewhere to their recorded addresses, permutations included."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from foundry.anchors import Move


class Memory(Protocol):
    """Device memory by address; all calls are synchronous."""

    def copy(self, destination: int, source: int, nbytes: int) -> None: ...

    def stash(self, source: int, nbytes: int) -> int:
        """Copies to temporary memory and returns its address."""

    def drop(self, stash: int) -> None:
        """Frees temporary memory."""


def obstacles(moves: Sequence[Move], blocks: Sequence[tuple[int, int, bool]]) -> list[str]:
    """Sentences for recorded places that hold something which does not itself move away.

    `blocks` are (address, bytes, active) of the framework's allocator. A block belongs to a storage that moves if it
    starts where the storage does.
    """
    leaving = {move.landed for move in moves}
    active = sorted((address, nbytes) for address, nbytes, used in blocks if used)
    starts = [address for address, _ in active]
    found = []
    for move in moves:
        first = max(0, bisect_right(starts, move.recorded) - 1)
        for address, nbytes in active[first : bisect_left(starts, move.recorded + move.nbytes)]:
            if address + nbytes > move.recorded and address not in leaving:
                found.append(
                    f"tensor {move.names[0]!r} landed at {move.landed:#x} and its recorded place {move.recorded:#x} "
                    f"({move.nbytes} bytes) is taken by a live tensor at {address:#x} that is no registered anchor"
                )
                break
    return found


def copy_all(moves: Sequence[Move], memory: Memory) -> None:
    """Copies every storage to its recorded address.

    A copy runs when nothing is left to be read from its destination. Where only cycles remain, one source is stashed.
    """
    order = sorted(range(len(moves)), key=lambda i: moves[i].landed)
    sources = [moves[i].landed for i in order]
    waits: list[set[int]] = []  # which moves still read from the destination of i
    blocks: list[list[int]] = [[] for _ in moves]
    for i, move in enumerate(moves):
        first = max(0, bisect_right(sources, move.recorded) - 1)
        last = bisect_left(sources, move.recorded + move.nbytes)
        readers = {j for j in order[first:last] if moves[j].landed + moves[j].nbytes > move.recorded}
        waits.append(readers)
        for j in readers:
            blocks[j].append(i)
    ready = deque(i for i in range(len(moves)) if not waits[i])
    remaining = dict.fromkeys(range(len(moves)))
    stashes: dict[int, int] = {}

    def source_is_free(j: int) -> None:
        for i in blocks[j]:
            waits[i].discard(j)
            if not waits[i] and i in remaining and i != j:
                ready.append(i)

    try:
        while remaining:
            if not ready:
                j = next(iter(i for i in remaining if i not in stashes))
                stashes[j] = memory.stash(moves[j].landed, moves[j].nbytes)
                source_is_free(j)
                if not waits[j]:
                    ready.append(j)
                continue
            i = ready.popleft()
            move = moves[i]
            memory.copy(move.recorded, stashes.get(i, move.landed), move.nbytes)
            del remaining[i]
            if i in stashes:
                memory.drop(stashes.pop(i))
            else:
                source_is_free(i)
    finally:
        for stash in stashes.values():
            memory.drop(stash)


class DeviceMemory:
    """Memory of the core. Temporary memory comes from a zone's allocator (sealed: plain memory that is given back at once),
    from the host where the device has none left."""

    def __init__(self, scratch_slot: int | None) -> None:
        from foundry import _core

        self._core = _core
        self._slot = scratch_slot
        self._next_host = -1
        self._host: dict[int, bytes] = {}

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        """Copies on the device, or from a stash on the host."""
        if source < 0:
            self._core.write_memory(destination, self._host[source])
        else:
            self._core.copy_memory(destination, source, nbytes)

    def stash(self, source: int, nbytes: int) -> int:
        """Negative addresses are stashes on the host."""
        if self._slot is not None:
            try:
                address = self._core.zone_alloc(self._slot, nbytes)
            except self._core.FoundryError as problem:
                if problem.kind != "out_of_memory":
                    raise
            else:
                self._core.copy_memory(address, source, nbytes)
                return address
        self._next_host -= 1
        self._host[self._next_host] = self._core.read_memory(source, nbytes)
        return self._next_host

    def drop(self, stash: int) -> None:
        """Frees a stash."""
        if stash < 0:
            del self._host[stash]
        else:
            self._core.zone_free(stash)
