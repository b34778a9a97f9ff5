"""Host memory that graphs use: registered by name in every mode."""

from __future__ import annotations

from array import array
from typing import Any

import fake_core
import pytest
from fake_framework import Framework
from session_world import Engine, World, start

import foundry


def registering(memory: Any, name: str = "staging") -> Any:
    def register(engine: Engine) -> None:
        assert engine.session.register_host(name, memory) is memory

    return register


def test_both_sides_tell_the_core_where_it_lies(world: World) -> None:
    buffer = array("i", range(16))
    world.save(before_input=registering(buffer))
    assert fake_core.process.host == {"staging": (id(buffer), 64)}
    other = bytearray(100)
    engine = world.load(before_input=registering(other))
    assert engine.session.report.outcome == "restored"
    assert fake_core.process.host == {"staging": (id(other), 100)}


def test_a_tensor_is_the_frameworks_business(world: World) -> None:
    def register(engine: Engine) -> None:
        tensor = engine.framework.tensor(bytes(24))
        engine.framework.on_host.append(tensor)
        engine.session.register_host("staging", tensor)
        assert fake_core.process.host == {"staging": (tensor.address, 24)}

    world.save(last=register)


def test_a_tensor_on_the_device_is_refused(world: World) -> None:
    def register(engine: Engine) -> None:
        engine.session.register_host("staging", engine.x)

    with pytest.raises(foundry.FoundryError, match="on the device"):
        world.save(last=register)
    assert not world.archive.exists()


def test_what_is_no_memory_is_refused(world: World) -> None:
    with pytest.raises(foundry.FoundryError, match="a list is no host memory") as caught:
        world.save(before_input=registering([1, 2]))
    assert caught.value.kind == "invalid"


def test_it_lives_as_long_as_the_session(world: World) -> None:
    def register(engine: Engine) -> None:
        engine.session.register_host("staging", bytearray(8))

    engine = world.save(before_input=register)
    assert [type(each) for each in engine.session._host] == [bytearray]


def test_too_late_on_load(world: World) -> None:
    world.save(before_input=registering(bytearray(8)))

    def late(engine: Engine) -> None:
        engine.session.finish()
        with pytest.raises(foundry.FoundryError, match="before the session is finished") as caught:
            engine.session.register_host("late", bytearray(8))
        assert caught.value.kind == "state"

    world.load(before_input=registering(bytearray(8)), last=late)


def test_native_sessions_take_anything(world: World) -> None:
    fake_core.new_process()
    framework = Framework()
    for mode in ("off", "auto"):
        start(world.session(framework, mode), framework, last=registering(bytearray(8)))
    assert fake_core.process.host == {}
