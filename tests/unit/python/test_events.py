"""Events that captured graphs share with the program, handed back by name."""

from __future__ import annotations

import fake_core
import pytest
from fake_framework import FakeEvent, Framework
from session_world import World

import foundry


def start(
    world: World, mode: str, hook: bool = False, drift: bool = False, record: bool = True, more: bool = False
) -> tuple[foundry.Session, dict[str, foundry.Graph], FakeEvent]:
    """A start with two graphs that record one event (`record`), and one more; returns the program's own event, too."""
    fake_core.new_process(hook=hook)
    framework = Framework()
    session = world.session(framework, mode)
    own = FakeEvent()
    graphs = {}
    with session as s:
        s.register_event("done", own)
        with s.phase("inputs"):
            if drift:
                framework.keep = framework.tensor(bytes(8))  # type: ignore[attr-defined]
            x = s.register("x", framework.tensor(bytes(8)), mutable=True)

        def forward() -> object:
            if record and framework.recording is not None:
                framework.record(s.event("done"))
            return framework.add(x, x)

        for name in ("a", "b", *(["c"] if more else [])):
            graphs[name] = s.graph(name, forward)
    return session, graphs, own


def test_restored_event_is_the_one_that_graphs_use(world: World) -> None:
    saved, graphs, own = start(world, "save", hook=True)
    assert saved.event("done") is own and own.handle and not saved.report.warnings
    graphs["b"].replay()
    assert fake_core.process.events == [own.handle]
    loaded, graphs, unused = start(world, "load")
    event = loaded.event("done")
    assert event is loaded.event("done") is not unused and unused.handle == 0
    for name in ("a", "b"):
        graphs[name].replay()
    assert fake_core.process.events == [event.handle] * 2


def test_graph_that_is_captured_beside_uses_the_restored_event(world: World) -> None:
    start(world, "save", hook=True)
    session, graphs, own = start(world, "load", more=True)
    assert list(session.report.fell_back) == ["c"]
    for graph in graphs.values():
        graph.replay()
    assert fake_core.process.events == [session.event("done").handle] * 3 and own.handle == 0


def test_native_capture_keeps_the_programs_event(world: World) -> None:
    start(world, "save", hook=True)
    session, graphs, own = start(world, "load", drift=True)
    assert session.report.outcome == "native" and session.event("done") is own
    graphs["a"].replay()
    assert fake_core.process.events == [own.handle]
    session, _, own = start(world, "off")
    assert session.event("done") is own and session.event("other") is None


def test_event_that_no_restored_graph_uses_is_not_handed_back(world: World) -> None:
    """A wait for it would wait for nothing."""
    saved, _, _ = start(world, "save", hook=True, record=False)
    assert ["external event" in warning for warning in saved.report.warnings] == [True]
    session, _, own = start(world, "load", record=False)
    assert session.report.outcome == "restored" and session.event("done") is own


def test_event_of_graphs_that_were_left_out(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    event = FakeEvent()
    with world.session(framework, "save") as s:
        s.register_event("done", event)
        s.graph("a", lambda: framework.recording is not None and framework.record(event), warmup=0)
        s.graph("b", lambda: framework.add(framework.tensor(bytes(8)), framework.tensor(bytes(8))), warmup=0)
        fake_core.process.doubts = {"a": fake_core.PLAIN_BASE}
    assert s.report.saved == ["b"]
    fake_core.new_process()
    framework = Framework()
    with world.session(framework, "load") as s:
        s.graph("b", lambda: None)
    assert s.report.restored == ["b"] and s.event("done") is None


def test_two_events_of_one_name(world: World) -> None:
    with world.session(Framework(), "off") as s:
        event = s.register_event("done", FakeEvent())
        assert s.register_event("done", event) is event
        with pytest.raises(foundry.FoundryError, match="two events are registered as 'done'"):
            s.register_event("done", FakeEvent())
