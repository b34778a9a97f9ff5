"""Before re-seating overwrites the place of a tensor that moves away: does anything else still mean that place?

A place that nothing is copied to keeps its content for good, so whoever looks there finds what was there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from foundry.anchors import Move

if TYPE_CHECKING:
    from foundry._core import Tensor

# Tables of addresses are arrays of 64-bit integers, or parts of plain bytes. Small memory that nobody registered may be
# anything. Pairs of 32-bit integers can look like an address and are none.
_LARGEST = {"int64": 16 << 20, "uint64": 16 << 20, "int8": 1 << 20, "uint8": 1 << 20}
_LARGEST_BLOCK = 1 << 20


def vacated(moves: Sequence[Move]) -> list[Move]:
    """The moves whose old place, or a part of it, is another one's new place (or their own)."""
    places = sorted((move.recorded, move.recorded + move.nbytes) for move in moves)  # none overlap
    starts = [begin for begin, _ in places]
    found = []
    for move in moves:
        last = bisect_right(starts, move.landed + move.nbytes - 1) - 1
        if last >= 0 and places[last][1] > move.landed:
            found.append(move)
    return found


def tables(registered: Mapping[str, Tensor], blocks: Iterable[tuple[int, int, bool]]) -> list[tuple[int, int, str]]:
    """(address, bytes, name) of memory that may hold addresses."""
    found = [
        (tensor.address, tensor.nbytes, f"tensor {name!r}")
        for name, tensor in registered.items()
        if tensor.nbytes <= _LARGEST.get(tensor.dtype, 0)
    ]
    known = {tensor.storage_address for tensor in registered.values()}
    found += [
        (address, nbytes, f"a tensor at {address:#x}")
        for address, nbytes, active in blocks
        if active and nbytes <= _LARGEST_BLOCK and address not in known
    ]
    return found


def stored_addresses(
    moves: Sequence[Move], memory: Iterable[tuple[int, int, str]], read: Callable[[int, int], bytes]
) -> list[str]:
    """Sentences for tensors that move away while their address stands in some memory, one for each tensor."""
    ordered = sorted(moves, key=lambda move: move.landed)
    starts = [move.landed for move in ordered]
    low, high = starts[0], max(move.landed + move.nbytes for move in ordered)
    found: dict[int, str] = {}
    for address, nbytes, what in memory:
        words = array("Q", read(address, nbytes // 8 * 8)) if nbytes >= 8 else array("Q")
        for word in words:
            if not low <= word < high:
                continue
            move = ordered[bisect_right(starts, word) - 1]
            if word < move.landed + move.nbytes and move.landed not in found:
                found[move.landed] = (
                    f"tensor {move.names[0]!r} must leave its place {move.landed:#x} to another one, and {what} holds "
                    f"its address ({word:#x}): allocate them in the same order as on SAVE"
                )
    return list(found.values())


def hidden_users(move: Move, number: int) -> str:
    """The sentence for a tensor whose memory is used by what the framework cannot find."""
    return (
        f"tensor {move.names[0]!r} must leave its place {move.landed:#x} to another one, and {number} more users of its "
        "memory cannot be found to move with it (views that C++ code keeps?): allocate them in the same order as on SAVE"
    )
