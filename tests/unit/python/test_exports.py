"""Exports: tensors that only forwards create, handed back by name."""

from __future__ import annotations

from typing import Any

import fake_core
import pytest
from fake_framework import FakeTensor, Framework
from session_world import Engine, World, start

import foundry

CONTENT = bytes(range(64, 96))


def hidden(engine: Engine) -> FakeTensor:
    """What a program does that needs a tensor of its first forward."""
    found = engine.session.exported("hidden")
    if found is None:
        engine.calls += 100
        found = engine.session.export("hidden", engine.framework.tensor(CONTENT))
    assert isinstance(found, FakeTensor)
    return found


def test_load_hands_back_the_tensor_and_its_content(world: World) -> None:
    made: list[FakeTensor] = []
    world.save(last=lambda engine: made.append(hidden(engine)))
    engine = world.load(last=lambda engine: made.append(hidden(engine)))
    assert engine.calls == 0
    saved, restored = made
    assert restored.address == saved.address and restored.data == CONTENT
    assert engine.session.exported("hidden") is restored
    assert engine.session.report.outcome == "restored"
    engine.check()


def test_export_on_load_gives_the_restored_tensor(world: World) -> None:
    world.save(last=hidden)
    found: list[Any] = []
    own = FakeTensor.__new__(FakeTensor)
    world.load(last=lambda engine: found.append(engine.session.export("hidden", own)))
    assert found[0] is not own and found[0].data == CONTENT


def test_what_save_did_not_export_is_the_programs_own(world: World) -> None:
    world.save()
    found: list[FakeTensor] = []
    engine = world.load(last=lambda engine: found.append(hidden(engine)))
    assert found[0].data == CONTENT and engine.calls == 100
    assert engine.session.exported("hidden") is found[0]


@pytest.mark.parametrize("mode", ["off", "load"])
def test_native_sessions_have_no_export_of_saves(world: World, mode: str) -> None:
    world.save(last=hidden)
    found: list[FakeTensor] = []
    other = {"sm_count": 108} if mode == "load" else {}
    engine = world.load(mode, process=other, last=lambda engine: found.append(hidden(engine)))
    assert engine.session.report.outcome == ("off" if mode == "off" else "native")
    assert found[0].data == CONTENT and engine.calls >= 100


def test_load_that_gives_up_has_no_export(world: World) -> None:
    world.save(last=hidden)
    found: list[Any] = []
    # A mutable tensor elsewhere: everything is captured natively, and the recorded memory is gone.
    engine = world.load(
        before_input=lambda engine: setattr(engine, "keep", engine.framework.alloc(600)),
        last=lambda engine: found.append(engine.session.exported("hidden")),
    )
    assert engine.session.report.outcome == "native"
    assert found == [None]


def save_export(world: World, make: Any) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    start(world.session(framework, "save"), framework, last=make)


def test_two_tensors_of_one_name_are_refused(world: World) -> None:
    def twice(engine: Engine) -> None:
        for _ in range(2):
            engine.session.export("hidden", engine.framework.tensor(CONTENT))

    with pytest.raises(foundry.FoundryError, match="two tensors are exported as 'hidden'"):
        save_export(world, twice)


def test_memory_of_a_rebuilt_phase_needs_an_anchor(world: World) -> None:
    def stray(engine: Engine) -> None:
        with engine.session.phase("inputs"):
            made = engine.framework.tensor(CONTENT)
        engine.session.export("hidden", made)

    with pytest.raises(foundry.FoundryError, match="lies in a phase that LOAD runs itself"):
        save_export(world, stray)


def test_an_export_may_be_a_view_of_an_anchor(world: World) -> None:
    def view(engine: Engine) -> None:
        assert engine.x is not None
        found = engine.session.exported("part")
        engine.part = found or engine.session.export("part", engine.x[8:16])  # type: ignore[attr-defined]

    world.save(last=view)
    engine = world.load(last=view)
    assert engine.x is not None
    engine.x.data = bytes(range(32))
    assert engine.part.data == bytes(range(8, 16))  # type: ignore[attr-defined]


def test_memory_outside_the_session_is_refused(world: World) -> None:
    def outside(engine: Engine) -> None:
        engine.framework.zone = None
        fake_core.set_ambient(0, None)
        engine.session.export("hidden", engine.framework.tensor(bytes(2000)))

    with pytest.raises(foundry.FoundryError, match="create the tensor inside the session"):
        save_export(world, outside)
