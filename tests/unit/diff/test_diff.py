"""Classification of what differs between two journals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundry.diff import Dependence, Dependents, Divergence, compare, divergences, own_frames, signature

MIB = 1 << 20


@dataclass
class Allocation:
    bytes: int
    address: int = 0
    stack: int = 0
    ordinal: int = 0


@dataclass
class Frame:
    module: str
    offset: int = 0
    build_id: str = ""


@dataclass
class Stack:
    frames: list[Frame]
    python_frames: list[Any] = field(default_factory=list)


@dataclass
class Zone:
    name: str
    kind: str = "rebuilt"


class Journal:
    def __init__(self, zones: dict[str, list[Allocation]], stacks: list[Stack] | None = None, **kinds: str) -> None:
        self.zones = [Zone(name, kinds.get(name, "rebuilt")) for name in zones]
        self._allocations = list(zones.values())
        self._stacks = stacks or []

    def allocations(self, zone: int | None) -> list[Allocation]:
        return [] if zone is None else self._allocations[zone]

    def stack(self, number: int) -> Stack:
        return self._stacks[number - 1] if number else Stack([])


def makers(*names: str) -> list[tuple[object, ...]]:
    return [(name,) if name else () for name in names]


@pytest.mark.parametrize(
    ("save", "load", "found"),
    [
        ([2, 20, 4], [2, 20, 4], []),
        ([], [], []),
        ([2, 20, 4], [2, 7, 20, 4], [Divergence("extra", 1, 1)]),
        ([2, 20, 4], [2, 20, 4, 4], [Divergence("extra", 3, 3)]),
        ([], [5], [Divergence("extra", 0, 0)]),
        ([2, 20, 4], [2, 4], [Divergence("missing", 1, 1)]),
        ([5], [], [Divergence("missing", 0, 0)]),
        ([2, 20, 4], [2, 24, 4], [Divergence("size", 1, 1)]),
        ([2, 20, 4], [20, 2, 4], [Divergence("order", 0, 1)]),
        ([2, 20, 4, 6], [20, 4, 6, 2], [Divergence("order", 0, 3)]),
        # Two things at one point: of another size, and one more.
        ([2, 20, 4], [2, 24, 7, 4], [Divergence("size", 1, 1), Divergence("extra", 2, 2)]),
        ([2, 20, 4, 9], [3, 20, 9], [Divergence("size", 0, 0), Divergence("missing", 2, 2)]),
    ],
)  # fmt: skip
def test_kinds(save: list[int], load: list[int], found: list[Divergence]) -> None:
    assert divergences(save, load) == found


def test_stacks_tell_which_of_equal_sizes_is_extra() -> None:
    save, load = [2, 2, 2], [2, 2, 2, 2]
    assert divergences(save, load) == [Divergence("extra", 3, 3)]
    assert divergences(save, load, makers("a", "b", "c"), makers("a", "x", "b", "c")) == [Divergence("extra", 1, 1)]


def test_stacks_tell_which_one_has_another_size() -> None:
    save, load = [2, 20, 4], [2, 7, 24, 4]
    assert divergences(save, load) == [Divergence("size", 1, 1), Divergence("extra", 2, 2)]
    found = divergences(save, load, makers("a", "b", "c"), makers("a", "x", "b", "c"))
    assert found == [Divergence("extra", 1, 1), Divergence("size", 1, 2)]


def test_stacks_tell_who_changed_places() -> None:
    save, load = [2, 2, 20], [2, 2, 20]
    assert divergences(save, load, makers("a", "b", "c"), makers("b", "a", "c")) == [Divergence("order", 0, 1)]
    assert divergences(save, load, makers("a", "b", "c"), makers("a", "d", "c")) == []  # one place, one size
    assert divergences([2, 20, 2], [2, 2, 20], makers("a", "b", "c"), makers("a", "c", "b")) == [
        Divergence("order", 1, 2)
    ]


def test_stacks_on_one_side_only_are_not_used() -> None:
    assert divergences([2, 2], [2, 2, 2], makers("a", "b"), makers("", "", "")) == [Divergence("extra", 2, 2)]


SIZES = st.lists(st.sampled_from([2, 20, 64, 128]), max_size=60)


@given(SIZES, st.data())
def test_one_random_edit_is_found(save: list[int], data: st.DataObject) -> None:
    edit = data.draw(st.sampled_from(["extra", "missing", "size"]))
    at = data.draw(st.integers(0, max(0, len(save) - (edit != "extra"))))
    if edit != "extra" and not save:
        return
    load = list(save)
    if edit == "extra":
        load.insert(at, 7)
    elif edit == "missing":
        del load[at]
    else:
        load[at] = 7
    (found,) = divergences(save, load)
    assert found.kind == edit
    if edit == "missing":
        # Any of a run of equal ones is as good.
        assert save[found.save_at] == save[at] and found.save is not None and found.load is None
    else:
        assert (found.save_at, found.load_at) == (at, at)


@given(SIZES, SIZES, st.booleans(), st.randoms(use_true_random=False))
def test_every_divergence_holds_and_every_allocation_is_accounted_for(
    save: list[int], load: list[int], stacks: bool, numbers: Any
) -> None:
    who = [makers(*(numbers.choice("abc") for _ in side)) if stacks else [] for side in (save, load)]
    found = divergences(save, load, *who)
    assert found == divergences(save, load, *who)
    for one in found:
        if one.kind == "size":
            assert save[one.save_at] != load[one.load_at] or stacks
        if one.kind == "order":
            assert save[one.save_at] == load[one.load_at]
    kinds = [one.kind for one in found]
    assert len(load) - len(save) == kinds.count("extra") - kinds.count("missing")
    lone_save = [one.save for one in found if one.save is not None]
    lone_load = [one.load for one in found if one.load is not None]
    assert len(set(lone_save)) == len(lone_save) and len(set(lone_load)) == len(lone_load)
    rest = [x for i, x in enumerate(save) if i not in lone_save], [x for i, x in enumerate(load) if i not in lone_load]
    assert rest[0] == rest[1]
    assert bool(found) == (save != load) or stacks


def test_zones_are_compared_by_name_and_only_where_load_allocates() -> None:
    save = Journal(
        {
            "ambient": [Allocation(1)],
            "weights": [Allocation(2 * MIB, 0x1000)],
            "kv": [Allocation(4)],
            "old": [Allocation(9)],
        },
        ambient="ambient",
    )
    load = Journal(
        {"kv": [Allocation(4)], "weights": [Allocation(2 * MIB), Allocation(3, 0x2000)], "new": [Allocation(1)]}
    )
    found = compare(save, load)  # type: ignore[arg-type]
    assert [(zone.zone, zone.counts()) for zone in found] == [
        ("weights", {"extra": 1}),
        ("kv", {}),
        ("old", {"missing": 1}),
        ("new", {"extra": 1}),
    ]
    weights, kv, old, _ = found
    assert kv.first is None
    assert weights.first is not None and old.first is not None
    assert "'weights': LOAD allocated 3 B that SAVE did not" in weights.sentence(weights.first)
    assert "0x2000" in weights.sentence(weights.first)
    assert "LOAD did not allocate 9 B that SAVE did" in old.sentence(old.first)


def test_sentences_name_both_sides() -> None:
    save = Journal({"w": [Allocation(2 * MIB, 0x10), Allocation(4, 0x20), Allocation(6, 0x30)]})
    for load, words in (
        ([Allocation(2 * MIB), Allocation(5, 0x40), Allocation(6)], ["5 B", "4 B", "0x20", "0x40"]),
        (
            [Allocation(4, 0x20), Allocation(2 * MIB), Allocation(6)],
            ["2.0 MiB", "another point", "allocation 1", "allocation 0"],
        ),
    ):
        (zone,) = compare(save, Journal({"w": load}))  # type: ignore[arg-type]
        assert zone.first is not None
        for word in words:
            assert word in zone.sentence(zone.first)


def test_signatures_are_without_foundrys_own_frames() -> None:
    save = Stack([Frame("libcuda_hook.so", 1), Frame("_core.so", 2), Frame("libtorch.so", 3), Frame("_core.so", 4)])
    load = Stack([Frame("_core.cpython-311-x86_64-linux-gnu.so", 9), Frame("libtorch.so", 3), Frame("_core.so", 4)])
    assert (own_frames(save), own_frames(load)) == (2, 1)
    assert signature(save) == signature(load)
    assert signature(Stack([Frame("libtorch.so", 5)])) != signature(Stack([Frame("libtorch.so", 3)]))
    assert signature(Stack([Frame("libtorch.so", 5, "aa")])) != signature(Stack([Frame("libtorch.so", 5, "bb")]))


def test_journals_stacks_are_used() -> None:
    stacks = [Stack([Frame("libcuda_hook.so", 1), Frame("engine", n)]) for n in range(3)]
    save = Journal({"w": [Allocation(2, stack=1), Allocation(2, stack=2)]}, stacks)
    loaded = [Stack([Frame("_core.so", 7), *stack.frames[1:]]) for stack in stacks]
    load = Journal({"w": [Allocation(2, stack=1), Allocation(2, stack=3), Allocation(2, stack=2)]}, loaded)
    (zone,) = compare(save, load)  # type: ignore[arg-type]
    assert zone.divergences == [Divergence("extra", 1, 1)]


@dataclass
class Pointer:
    value: int
    graph: str


@dataclass
class Tensor:
    name: str
    storage_address: int
    storage_bytes: int
    constant: bool = True
    mutable: bool = False


@dataclass
class Archive:
    found: list[Pointer]
    tensors: list[Tensor]

    def pointers(self) -> list[Pointer]:
        return self.found


def test_dependents() -> None:
    archive = Archive(
        [Pointer(0x100, "b"), Pointer(0x1FF, "a"), Pointer(0x200, "c"), Pointer(0x180, "b")],
        [Tensor("w", 0x80, 0x100), Tensor("x", 0x200, 16), Tensor("output", 0x100, 4, constant=False)],
    )
    dependents = Dependents(archive)  # type: ignore[arg-type]
    assert dependents.of(0x100, 0x100) == Dependence(("a", "b"), ("w",))
    assert dependents.of(0x200, 1) == Dependence(("c",), ("x",))
    nobody = dependents.of(0x300, 0x1000)
    assert nobody == Dependence((), ())
    assert str(nobody) == "no graph depends on these addresses"
    assert str(dependents.of(0x100, 0x100)) == "2 graphs (a, b) depend on these addresses; they hold w"
    assert str(dependents.of(0x200, 1)) == "1 graph (c) depends on these addresses; they hold x"
