"""Re-seating never overwrites memory that something unregistered still means."""

from __future__ import annotations

import re
from collections.abc import Callable

import fake_core
import pytest
from fake_framework import FakeTensor
from session_world import WEIGHTS, Engine, World

from foundry import vacating
from foundry.anchors import Move

SWAPPED = ("w1", "w0")


def test_unregistered_view_moves_with_its_tensor(world: World) -> None:
    world.save()
    views: list[FakeTensor] = []

    def keep(engine: Engine) -> None:
        views.extend(engine.model.tensors[name][8:16] for name in SWAPPED)

    engine = world.load(order=SWAPPED, before_input=keep)
    engine.check()
    assert engine.session.report.outcome == "restored"
    for view, name in zip(views, SWAPPED, strict=True):
        assert view.data == WEIGHTS[name][8:16] and view.storage is engine.model.tensors[name].storage


def hide(engine: Engine) -> None:
    engine.framework.hidden_users = 2


def tabulate(engine: Engine) -> None:
    """A table of addresses that nobody registered."""
    address = engine.model.tensors["w0"].address + 8
    engine.table = engine.framework.tensor(bytes(8) + address.to_bytes(8, "little"))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (hide, "tensor 'model.w1' must leave its place 0x.* and 2 more users of its memory cannot be found"),
        (tabulate, "tensor 'model.w0' must leave its place 0x.* and a tensor at 0x.* holds its address"),
    ],
)
def test_what_cannot_move_is_refused_before_anything_does(
    world: World, prepare: Callable[[Engine], None], words: str
) -> None:
    world.save()
    engine = world.load(order=SWAPPED, last=prepare)
    engine.check()
    report = engine.session.report
    assert report.outcome == "native" and not report.reseated
    (sentence,) = [s for s in report.differences if "'model.w0'" in s or prepare is hide][:1]

    assert re.search(words, sentence), report.differences
    for name, tensor in engine.model.tensors.items():
        assert tensor.data == WEIGHTS[name]


@pytest.mark.parametrize("prepare", [hide, tabulate])
def test_place_that_is_not_overwritten_may_be_meant(world: World, prepare: Callable[[Engine], None]) -> None:
    """Its content stays: whoever looks there finds the same."""
    world.save()

    def move_away(engine: Engine) -> None:
        engine.pad = engine.framework.alloc(900)  # type: ignore[attr-defined]

    def come_back(engine: Engine) -> None:
        del engine.pad  # type: ignore[attr-defined]

    def also(engine: Engine) -> None:
        prepare(engine)
        engine.old = engine.model.tensors["w0"].address  # type: ignore[attr-defined]

    engine = world.load(inside=move_away, before_input=come_back, last=also)
    engine.check()
    assert engine.session.report.outcome == "restored" and len(engine.session.report.reseated) == 2
    assert fake_core.read_memory(engine.old, 32) == WEIGHTS["w0"]  # type: ignore[attr-defined]


def move(landed: int, recorded: int, nbytes: int = 64) -> Move:
    return Move(landed, recorded, nbytes, (f"{landed:#x}",))


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ([move(0x1000, 0x5000)], []),
        ([move(0x1000, 0x2000), move(0x2000, 0x1000)], [0x1000, 0x2000]),
        ([move(0x1000, 0x2000), move(0x2000, 0x3000)], [0x2000]),
        ([move(0x1000, 0x1020)], [0x1000]),
        ([move(0x1000, 0x1040)], []),
        ([move(0x1000, 0xFC0)], []),
        ([move(0x1000, 0xFC1)], [0x1000]),
        ([move(0x1000, 0x9000, 4096), move(0x8000, 0x1FC0)], [0x1000]),
        ([move(0x1000, 0x9000, 4096), move(0x8000, 0x1000)], [0x1000]),
    ],
)
def test_vacated(moves: list[Move], expected: list[int]) -> None:
    assert [m.landed for m in vacating.vacated(moves)] == expected


def test_stored_addresses() -> None:
    moves = [move(0x2000, 0x1000), move(0x1000, 0x2000)]
    memory = {0x100: 0x1000, 0x108: 0x103F, 0x110: 0x1040, 0x118: 0x1FFF, 0x120: 0x2000, 0x128: 0x2040}

    def read(address: int, nbytes: int) -> bytes:
        return b"".join(memory[a].to_bytes(8, "little") for a in range(address, address + nbytes, 8))

    def found(address: int, nbytes: int) -> list[str]:
        return [s.split("'")[1] for s in vacating.stored_addresses(moves, [(address, nbytes, "it")], read)]

    assert found(0x100, 48) == ["0x1000", "0x2000"]
    assert found(0x108, 8) == ["0x1000"] and found(0x120, 15) == ["0x2000"]
    assert found(0x110, 16) == found(0x128, 8) == found(0x100, 7) == []


def test_tables() -> None:
    def tensor(address: int, dtype: str, nbytes: int) -> fake_core.Tensor:
        return fake_core.Tensor("", dtype, 1, address + 1, [nbytes], [1], address, nbytes + 1)

    tensors = {
        "a": tensor(10, "int64", 64),
        "b": tensor(20, "float16", 64),
        "c": tensor(30, "uint64", 17 << 20),
        "d": tensor(40, "uint64", 16 << 20),
        "e": tensor(50, "uint8", 2 << 20),
        "f": tensor(60, "uint8", 1 << 20),
        "g": tensor(70, "int32", 64),
    }
    blocks = [(80, 512, True), (90, 512, False), (100, 2 << 20, True), (20, 64, True), (10, 128, True)]
    assert [address for address, _, _ in vacating.tables(tensors, blocks)] == [11, 41, 61, 80]
