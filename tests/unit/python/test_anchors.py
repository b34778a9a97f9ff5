"""Anchor tensors on LOAD: in place, re-seated (permutations and aliases included), or refused by name."""

from __future__ import annotations

from typing import Any

import fake_core
import pytest
from fake_framework import FakeTensor, Framework
from hypothesis import given
from hypothesis import strategies as st
from session_world import SIZES, Engine, World

import foundry
from foundry import reseat
from foundry.anchors import Move, compare


def native_because(engine: Engine, *words: str) -> None:
    """The whole LOAD fell back, still right, and the report has these words."""
    engine.check()
    report = engine.session.report
    assert report.outcome == "native"
    assert {graph.source for graph in engine.graphs.values()} == {"native"}
    assert fake_core.process.open_loaders == []
    for word in words:
        assert word in str(report), f"{word!r} is not in:\n{report}"


def restored(engine: Engine) -> None:
    engine.check()
    assert engine.session.report.outcome == "restored"
    assert {graph.source for graph in engine.graphs.values()} == {"restored"}
    assert engine.calls == 0


def test_swapped_weights_are_both_right(world: World) -> None:
    world.save()
    engine = world.load(order=("w1", "w0"))
    assert not fake_core.process.quarantined, "what held one of them meanwhile is kept for ever"
    restored(engine)
    moved = {r.name: (r.landed, r.recorded) for r in engine.session.report.reseated}
    assert set(moved) == {"model.w0", "model.w1"}
    assert moved["model.w0"] == moved["model.w1"][::-1]
    for name, (_, address) in moved.items():
        tensor = engine.model.tensors[name.removeprefix("model.")]
        assert tensor.address == address
    # Memory of the old places is never handed out again.
    with _zone(engine, "weights"):
        fresh = [engine.framework.alloc(32) for _ in range(20)]
    assert not {tensor.address for tensor in fresh} & {address for pair in moved.values() for address in pair}
    text = str(engine.session.report)
    assert hex(moved["model.w0"][0]) in text and "model.w1" in text


class _zone:
    """Allocates from a zone as if its phase had been entered again."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.framework = engine.framework
        self.slot = next(zone.slot for zone in fake_core.process.zones.values() if zone.name == name)

    def __enter__(self) -> None:
        self.framework.begin_zone(self.slot)

    def __exit__(self, *exception: object) -> None:
        self.framework.end_zone(self.slot)


def test_extra_allocation_in_the_phase_shifts_and_is_repaired(world: World) -> None:
    world.save()
    keep: list[Any] = []
    engine = world.load(inside=lambda e: keep.append(e.framework.alloc(600)), last=lambda e: keep.clear())
    # A temporary took the first blocks: both go back, over what is free by now.
    restored(engine)
    assert {r.name for r in engine.session.report.reseated} == {"model.w0", "model.w1"}


def test_fewer_allocations_in_the_phase(world: World) -> None:
    keep: list[Any] = []
    world.save(inside=lambda e: keep.append(e.framework.alloc(600)))
    engine = world.load()
    restored(engine)
    assert len(engine.session.report.reseated) == 2


def test_recorded_place_taken_by_an_unregistered_tensor(world: World) -> None:
    world.save()
    keep: list[Any] = []
    engine = world.load(inside=lambda e: keep.append(e.framework.tensor(bytes(64))))
    native_because(engine, "model.w0", "taken by a live tensor", hex(keep[0].address))
    assert keep[0].data == bytes(64)


def test_mutable_elsewhere_is_refused(world: World) -> None:
    world.save()
    keep: list[Any] = []
    engine = world.load(before_input=lambda e: keep.append(e.framework.alloc(64)))
    native_because(engine, "'x' is mutable", hex(fake_core.ZONE_BASE + 3 * fake_core.ZONE_SIZE + 64))
    with pytest.raises(foundry.FoundryError, match="'x' is mutable") as caught:
        world.load(before_input=lambda e: keep.append(e.framework.alloc(64)), session={"on_mismatch": "fail"})
    assert caught.value.kind == "mismatch"
    assert fake_core.process.open_loaders == []


def test_weights_outside_a_phase_on_load_are_re_seated(world: World) -> None:
    """Even without the phase: the recorded memory is claimed, and the weights go there."""
    world.save()
    fake_core.new_process()
    framework = Framework()
    with world.session(framework, "load") as s:
        model = {name: framework.tensor(data) for name, data in (("w0", bytes(range(32))), ("w1", bytes(32)))}
        for name, tensor in model.items():
            s.register(f"model.{name}", tensor)
        with s.phase("inputs"):
            x = s.register("x", framework.tensor(bytes(32)), mutable=True)
        graph = s.graph("decode/8", lambda: None)
    x.data = bytes([5] * 32)
    graph.replay()
    assert graph.source == "restored"
    assert graph.outputs.data == bytes(5 + i for i in range(8))
    assert {r.name for r in s.report.reseated} == {"model.w0", "model.w1"}


def test_missing_anchor_is_named(world: World) -> None:
    world.save()
    fake_core.new_process()
    framework = Framework()
    with world.session(framework, "load") as s:
        with s.phase("weights"):
            s.register("model.w0", framework.tensor(bytes(32)))
        with s.phase("inputs"):
            s.register("x", framework.tensor(bytes(32)), mutable=True)
        graph = s.graph("decode/8", lambda: "native")
    assert graph.outputs == "native"
    assert "tensor 'model.w1' was registered on SAVE" in str(s.report)


def test_extra_anchor_is_only_reported(world: World) -> None:
    world.save()
    engine = world.load(
        before_input=lambda e: e.session.register("more", e.framework.tensor(bytes(8))) and None, order=("w0", "w1")
    )
    assert engine.session.report.extra_anchors == ["more"]


@pytest.mark.parametrize("length", [31, 33])
def test_other_size_is_refused(world: World, length: int) -> None:
    world.save()
    fake_core.new_process()
    framework = Framework()
    with world.session(framework, "load") as s:
        with s.phase("weights"):
            s.register("model.w0", framework.tensor(bytes(length)))
            s.register("model.w1", framework.tensor(bytes(32)))
        with s.phase("inputs"):
            s.register("x", framework.tensor(bytes(32)), mutable=True)
        s.graph("decode/8", lambda: None)
    assert f"'model.w0' has shape [{length}] here, [32] in the archive" in str(s.report)


def tied(world: World, session: foundry.Session, framework: Framework, swap: bool) -> tuple[Any, list[FakeTensor]]:
    """A weight with two registered views, and one plain weight; `swap` allocates them in the other order."""
    with session as s:
        with s.phase("weights"):
            made = [framework.tensor(bytes([7 if swap else 1] * 64)), framework.tensor(bytes([1 if swap else 7] * 64))]
            whole, plain = made[::-1] if swap else made
            whole.data = bytes([1] * 32 + [2] * 32)
            views = [s.register("whole", whole), s.register("tail", whole[32:]), s.register("plain", plain)]
        graph = s.graph("g", lambda: framework.add(views[1], views[2][:32]))
    return graph, views


def test_aliases_move_together(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    tied(world, world.session(framework, "save"), framework, swap=False)
    fake_core.new_process()
    framework = Framework()
    session = world.session(framework, "load")
    graph, views = tied(world, session, framework, swap=True)
    graph.replay()
    assert graph.source == "restored" and graph.outputs.data == bytes([9] * 32)
    assert views[0].storage is views[1].storage
    assert views[1].address == views[0].address + 32
    assert {r.name for r in session.report.reseated} == {"whole", "tail", "plain"}
    views[0].data = bytes([100] * 64)
    graph.replay()
    assert graph.outputs.data == bytes([107] * 32)


def test_aliasing_that_changed_is_refused(world: World) -> None:
    """Two names of one weight on SAVE, two weights here (and the other way round)."""
    for first, second in ((True, False), (False, True)):
        for mode, alias in (("save", first), ("load", second)):
            fake_core.new_process(hook=mode == "save")
            framework = Framework()
            session = world.session(framework, mode)
            with session as s, s.phase("weights"):
                pad = [framework.alloc(64) for _ in range(mode == "load")]
                a = s.register("a", framework.tensor(bytes(64)))
                s.register("b", a[:] if alias else framework.tensor(bytes(64)))
        assert session.report.outcome == "native", pad
        assert "share memory" in str(session.report)


# ---- the parts


def tensor(name: str, address: int, nbytes: int = 64, **options: Any) -> fake_core.Tensor:
    return fake_core.Tensor(name, "uint8", 1, address, [nbytes], [1], address, nbytes, **options)


def test_compare_names_both_addresses() -> None:
    result = compare([tensor("kv", 0x1000, mutable=True)], {"kv": tensor("kv", 0x2000)}, set())
    assert "0x1000" in result.differences[0] and "0x2000" in result.differences[0]
    # Mutable on either side counts.
    assert compare([tensor("kv", 0x1000, constant=True)], {"kv": tensor("kv", 0x2000)}, {"kv"}).differences


def test_compare_sees_dtype_and_strides() -> None:
    here = tensor("w", 0x1000)
    here.change(dtype="int8")
    assert "is int8 here, uint8 in the archive" in compare([tensor("w", 0x1000)], {"w": here}, set()).differences[0]
    two = [fake_core.Tensor("w", "u8", 1, 0x1000, [2, 2], strides, 0x1000, 4) for strides in ([2, 1], [1, 2])]
    assert "strides [1, 2] here, [2, 1]" in compare([two[0]], {"w": two[1]}, set()).differences[0]


def test_overlapping_recorded_places_are_refused() -> None:
    recorded = [tensor("a", 0x1000), tensor("b", 0x1020)]
    live = {"a": tensor("a", 0x5000), "b": tensor("b", 0x6000)}
    assert "overlap" in compare(recorded, live, set()).differences[0]


def test_empty_tensors_have_no_place() -> None:
    assert compare([tensor("e", 0, 0)], {"e": tensor("e", 0x10, 0)}, set()).in_place == ["e"]


@pytest.mark.parametrize(
    ("block", "blocked"),
    [
        ((0x1000, 64, True), True),
        ((0x1000, 64, False), False),
        ((0xFC0, 64, True), False),
        ((0xFC0, 65, True), True),
        ((0x1040, 64, True), False),
        ((0x103F, 1, True), True),
        ((0x2000, 64, True), False),
    ],
)
def test_obstacles(block: tuple[int, int, bool], blocked: bool) -> None:
    found = reseat.obstacles([Move(0x2000, 0x1000, 64, ("w",))], [block, (0x2000, 64, True)])
    assert bool(found) is blocked


class Bytes:
    """Memory as one array; counts stashes."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.stashed: dict[int, bytes] = {}
        self.most = 0

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        # Like a device copy, undefined for overlaps: here they are torn on purpose.
        data = self.stashed[source] if source < 0 else bytes(self.data[source : source + nbytes])
        if source >= 0 and abs(destination - source) < nbytes:
            data = bytes(nbytes)
        self.data[destination : destination + nbytes] = data

    def stash(self, source: int, nbytes: int) -> int:
        key = -len(self.stashed) - 1
        while key in self.stashed:
            key -= 1
        self.stashed[key] = bytes(self.data[source : source + nbytes])
        self.most = max(self.most, len(self.stashed))
        return key

    def drop(self, stash: int) -> None:
        del self.stashed[stash]


@given(st.data())
def test_every_arrangement_is_copied_right(data: st.DataObject) -> None:
    """Storages of any sizes, laid out in any two orders with any gaps: contents end at the recorded places."""
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=9))
    places: list[dict[int, int]] = []
    for _ in range(2):
        address, layout = 0, {}
        for i in data.draw(st.permutations(range(len(sizes)))):
            address += data.draw(st.integers(0, 3))
            layout[i] = address
            address += sizes[i]
        places.append(layout)
    memory = Bytes(sum(sizes) + 4 * len(sizes))
    for i, nbytes in enumerate(sizes):
        memory.data[places[0][i] : places[0][i] + nbytes] = bytes([i + 1]) * nbytes
    moves = [
        Move(places[0][i], places[1][i], n, (str(i),)) for i, n in enumerate(sizes) if places[0][i] != places[1][i]
    ]
    reseat.copy_all(moves, memory)
    for i, nbytes in enumerate(sizes):
        if places[0][i] != places[1][i]:
            assert memory.data[places[1][i] : places[1][i] + nbytes] == bytes([i + 1]) * nbytes
    assert memory.stashed == {}


def test_many_swaps_need_one_stash_at_a_time() -> None:
    memory = Bytes(4000)
    moves = []
    for i in range(0, 200, 2):
        moves += [Move(i * 10, i * 10 + 10, 10, ("a",)), Move(i * 10 + 10, i * 10, 10, ("b",))]
    for i in range(200):
        memory.data[i * 10 : i * 10 + 10] = bytes([i]) * 10
    reseat.copy_all(moves, memory)
    assert [memory.data[i * 10] for i in range(200)] == [i ^ 1 for i in range(200)]
    assert memory.most == 1


def test_stash_goes_to_the_host_when_the_device_is_full(world: World) -> None:
    world.save()
    engine = world.load(
        order=("w1", "w0"), last=lambda engine: fake_core.process.out_of_memory_in.update(fake_core.process.zones)
    )
    restored(engine)


def test_failing_claim_leaves_weights_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save()

    def claim(self: object, address: int, nbytes: int) -> None:
        raise fake_core.fail("out_of_memory", "no device memory for re-seating")

    monkeypatch.setattr(fake_core.Loader, "claim", claim)
    engine = world.load(order=("w1", "w0"))
    native_because(engine, "no device memory for re-seating")
    assert len(SIZES) == len(engine.graphs)


@pytest.mark.parametrize("problem", [foundry.FoundryError("refused late"), RuntimeError("out of memory")])
def test_a_move_that_fails_half_way_never_goes_native(
    world: World, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """Weights may be overwritten by then: every way on would compute with the wrong ones."""
    world.save()
    seen: list[Engine] = []

    def fail(*arguments: Any) -> None:
        raise problem

    with pytest.raises(type(problem), match=str(problem)):
        world.load(
            order=("w1", "w0"),
            before=lambda e: (seen.append(e), monkeypatch.setattr(e.framework, "reseat", fail))[0],
        )
    engine = seen[0]
    assert engine.session.report.outcome == "failed"
    with pytest.raises(foundry.FoundryError, match="cannot replay"):
        engine.graphs[8].replay()
    # Tensors that point to moved memory still have it.
    assert len(fake_core.process.open_loaders) == 1


def test_an_error_that_is_not_ours_is_not_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anchors were never compared: no restored graph may be handed out."""
    world.save()
    seen: list[Engine] = []

    def fail() -> None:
        raise RuntimeError("the driver is gone")

    with pytest.raises(RuntimeError, match="the driver is gone"):
        world.load(
            before=lambda e: (seen.append(e), monkeypatch.setattr(e.framework, "synchronize", fail))[0],
        )
    with pytest.raises(foundry.FoundryError, match="cannot replay"):
        seen[0].graphs[8].replay()


def test_a_view_of_less_memory_is_not_in_place() -> None:
    """Graphs may use all of the storage that SAVE vouched for."""

    def tensor(storage_bytes: int) -> fake_core.Tensor:
        return fake_core.Tensor("rows", "uint8", 1, 0x1000, [8], [1], 0x1000, storage_bytes, mutable=True)

    result = compare([tensor(512)], {"rows": tensor(8)}, {"rows"})
    assert result.in_place == [] and "graphs may use all of it" in result.differences[0]
    assert compare([tensor(512)], {"rows": tensor(512)}, {"rows"}).in_place == ["rows"]
