"""`foundry diff`: where the allocations of a LOAD part from those of the SAVE, zone by zone.

Allocations are aligned by size and, where both journals have stacks, by who made them. Nothing here touches a device.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from foundry.align import align, gaps
from foundry.text import count, size, some

if TYPE_CHECKING:
    from foundry._core import Archive, Journal, JournalAllocation, JournalStack

Kind = Literal["extra", "missing", "size", "order"]
Signature = tuple[object, ...]

REBUILT = "rebuilt"
# Innermost frames of these files are Foundry's own and differ between SAVE and LOAD.
_OWN_FILES = ("libcuda_hook.so", "_core")


@dataclass(frozen=True)
class Divergence:
    """One place where the journals part.

    extra: only LOAD made it. missing: only SAVE made it. size: both made one at this point, of different sizes.
    order: both made it, at different points. `save_at` and `load_at` are positions among the zone's allocations; of the
    side that made none, the position of what it made next.
    """

    kind: Kind
    save_at: int
    load_at: int

    @property
    def save(self) -> int | None:
        """SAVE's allocation, None for an extra one."""
        return None if self.kind == "extra" else self.save_at

    @property
    def load(self) -> int | None:
        """LOAD's allocation, None for a missing one."""
        return None if self.kind == "missing" else self.load_at


@dataclass(frozen=True)
class Dependence:
    """What of the archive lies in a range of addresses."""

    graphs: tuple[str, ...]
    tensors: tuple[str, ...]

    def __str__(self) -> str:
        if not self.graphs and not self.tensors:
            return "no graph depends on these addresses"
        parts = [f"{count(len(self.graphs), 'graph')} ({some(self.graphs, 4)})"] if self.graphs else ["no graph"]
        sentence = f"{parts[0]} {'depends' if len(self.graphs) < 2 else 'depend'} on these addresses"
        return f"{sentence}; they hold {some(self.tensors, 4)}" if self.tensors else sentence


@dataclass(frozen=True)
class ZoneDiff:
    """One rebuilt zone: the allocations of both sides and where they part, in order."""

    zone: str
    save: Sequence[JournalAllocation]
    load: Sequence[JournalAllocation]
    divergences: Sequence[Divergence]

    @property
    def first(self) -> Divergence | None:
        """The first place where they part."""
        return self.divergences[0] if self.divergences else None

    def counts(self) -> dict[Kind, int]:
        """How many of each kind."""
        return dict(Counter(found.kind for found in self.divergences))

    def sentence(self, found: Divergence) -> str:
        """What happened there, for people."""
        save = None if found.save is None else self.save[found.save]
        load = None if found.load is None else self.load[found.load]
        where = f"zone {self.zone!r}"
        if found.kind == "size" and save is not None and load is not None:
            place = f"{_at(load, found.load)}; SAVE allocated {size(save.bytes)} there ({_at(save, found.save)})"
            return f"{where}: LOAD allocated {size(load.bytes)} {place}"
        if found.kind == "order" and save is not None and load is not None:
            place = f"allocation {found.load} of LOAD is allocation {found.save} of SAVE"
            return f"{where}: {size(load.bytes)} came at another point: {place}"
        if load is not None:
            return f"{where}: LOAD allocated {size(load.bytes)} that SAVE did not, {_at(load, found.load)}"
        assert save is not None  # one side is always there
        return f"{where}: LOAD did not allocate {size(save.bytes)} that SAVE did, {_at(save, found.save)}"


def _at(allocation: JournalAllocation, position: int | None) -> str:
    return f"as allocation {position} of the zone at {allocation.address:#x}"


class Dependents:
    """Which graphs and tensors of an archive depend on addresses."""

    def __init__(self, archive: Archive) -> None:
        self._pointers = sorted((pointer.value, pointer.graph) for pointer in archive.pointers())
        self._tensors = sorted(
            (t.storage_address, t.storage_address + t.storage_bytes, t.name)
            for t in archive.tensors
            if t.constant or t.mutable
        )

    def of(self, address: int, nbytes: int) -> Dependence:
        """Those that point into, or lie in, [address, address + nbytes)."""
        end = address + nbytes
        at = bisect_left(self._pointers, (address, ""))
        graphs: dict[str, None] = {}
        while at < len(self._pointers) and self._pointers[at][0] < end:
            graphs[self._pointers[at][1]] = None
            at += 1
        tensors = [name for begin, finish, name in self._tensors if begin < end and finish > address]
        return Dependence(tuple(sorted(graphs)), tuple(tensors))


class Signatures:
    """Who made an allocation, comparable between processes; empty where the journal has no stack."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[int, Signature] = {0: ()}

    def of(self, allocation: JournalAllocation) -> Signature:
        """The frames outside Foundry."""
        if allocation.stack not in self._known:
            self._known[allocation.stack] = signature(self._journal.stack(allocation.stack))
        return self._known[allocation.stack]


def own_frames(stack: JournalStack) -> int:
    """How many of the innermost native frames are Foundry's."""
    own = 0
    for frame in stack.frames:
        if not (frame.module == _OWN_FILES[0] or frame.module.startswith(f"{_OWN_FILES[1]}.")):
            break
        own += 1
    return own


def signature(stack: JournalStack) -> Signature:
    """Native and Python frames without Foundry's own."""
    native = tuple((f.module, f.build_id, f.offset) for f in stack.frames[own_frames(stack) :])
    return (native, tuple((f.function, f.file, f.line) for f in stack.python_frames))


def compare(save: Journal, load: Journal) -> list[ZoneDiff]:
    """Every zone that LOAD rebuilds, in the order of SAVE's journal; zones that only LOAD has come last.

    Other zones are materialized: nothing is allocated there on LOAD, so there is nothing to compare.
    """
    by_name = {zone.name: i for i, zone in enumerate(load.zones) if zone.kind == REBUILT}
    found = []
    signatures = Signatures(save), Signatures(load)
    for i, zone in enumerate(save.zones):
        if zone.kind == REBUILT:
            other = by_name.pop(zone.name, None)
            loaded = [] if other is None else load.allocations(other)
            found.append(_compare(zone.name, save.allocations(i), loaded, signatures))
    return found + [_compare(name, [], load.allocations(i), signatures) for name, i in by_name.items()]


def _compare(
    zone: str,
    save: Sequence[JournalAllocation],
    load: Sequence[JournalAllocation],
    signatures: tuple[Signatures, Signatures],
) -> ZoneDiff:
    makers = [[book.of(each) for each in side] for book, side in zip(signatures, (save, load), strict=True)]
    sizes = [each.bytes for each in save], [each.bytes for each in load]
    return ZoneDiff(zone, save, load, divergences(*sizes, *makers))


def divergences(
    save: Sequence[int],
    load: Sequence[int],
    save_makers: Sequence[Signature] = (),
    load_makers: Sequence[Signature] = (),
) -> list[Divergence]:
    """Where two lists of sizes part, in order. `makers` say who allocated each; () where that is not known."""
    known = any(save_makers) and any(load_makers)
    makers = (save_makers, load_makers) if known else ([()] * len(save), [()] * len(load))
    pairs = _pairs(save, load, *makers) if known else align(save, load)
    between = gaps(pairs, len(save), len(load))
    moved = _moved(between, save, load, *makers)
    found: list[Divergence] = []
    done: set[tuple[int, int]] = set()
    for left, right in between:
        found += _in_gap(left, right, moved, done, *makers)
    return found


def _pairs(
    save: Sequence[int], load: Sequence[int], save_makers: Sequence[Signature], load_makers: Sequence[Signature]
) -> list[tuple[int, int]]:
    """Same size and same maker first, then same size between those."""
    both = list(zip(save, save_makers, strict=True)), list(zip(load, load_makers, strict=True))
    sure = align(*both)
    pairs = list(sure)
    for left, right in gaps(sure, len(save), len(load)):
        inner = align(save[left.start : left.stop], load[right.start : right.stop])
        pairs += [(left.start + x, right.start + y) for x, y in inner]
    return sorted(pairs)


def _moved(
    between: Sequence[tuple[range, range]],
    save: Sequence[int],
    load: Sequence[int],
    save_makers: Sequence[Signature],
    load_makers: Sequence[Signature],
) -> dict[tuple[str, int], tuple[int, int]]:
    """What stands unmatched on both sides at different points: ("save", i) and ("load", j) -> (i, j)."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for with_maker in (True, False):
        waiting: dict[object, deque[int]] = {}
        for left, _ in between:
            for i in left:
                if ("save", i) not in found:
                    waiting.setdefault((save[i], save_makers[i] if with_maker else None), deque()).append(i)
        for _, right in between:
            for j in right:
                same = waiting.get((load[j], load_makers[j] if with_maker else None))
                if ("load", j) not in found and same:
                    pair = same.popleft(), j
                    found["save", pair[0]] = found["load", j] = pair
    return found


def _in_gap(
    left: range,
    right: range,
    moved: dict[tuple[str, int], tuple[int, int]],
    done: set[tuple[int, int]],
    save_makers: Sequence[Signature],
    load_makers: Sequence[Signature],
) -> list[Divergence]:
    placed: list[tuple[int, int, Divergence]] = []

    def put(kind: Kind, i: int, j: int, at: int) -> None:
        placed.append((at, len(placed), Divergence(kind, i, j)))

    lone_save: list[int] = []
    lone_load: list[int] = []
    for side, items, lone in (("save", left, lone_save), ("load", right, lone_load)):
        for at, item in enumerate(items):
            pair = moved.get((side, item))
            if pair is None:
                lone.append(item)
            elif pair not in done:
                done.add(pair)
                put("order", *pair, at)
    # Who is the same, then whoever stands at the same place.
    same_maker = [(x, y) for x, y in align([save_makers[i] for i in lone_save], [load_makers[j] for j in lone_load])
                  if save_makers[lone_save[x]]]  # fmt: skip
    for left_rest, right_rest in gaps(same_maker, len(lone_save), len(lone_load)):
        same_maker += zip(left_rest, right_rest, strict=False)
    same_maker.sort()
    for x, y in same_maker:
        put("size", lone_save[x], lone_load[y], lone_load[y] - right.start)
    for x in sorted(set(range(len(lone_save))) - {x for x, _ in same_maker}):
        before = bisect_left(same_maker, (x, 0))
        after = lone_load[same_maker[before - 1][1]] + 1 if before else right.start
        put("missing", lone_save[x], after, lone_save[x] - left.start)
    paired = [y for _, y in same_maker]
    for y in sorted(set(range(len(lone_load))) - set(paired)):
        before = bisect_left(paired, y)
        after = lone_save[same_maker[before - 1][0]] + 1 if before else left.start
        put("extra", after, lone_load[y], lone_load[y] - right.start)
    return [each for _, _, each in sorted(placed, key=lambda item: item[:2])]
