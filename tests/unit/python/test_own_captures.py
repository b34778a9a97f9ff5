"""Captures that the program makes with its own code, and sessions that are no `with` block."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import fake_core
import pytest
from fake_framework import FakeTensor, Framework
from session_world import WEIGHTS, World

import foundry
from foundry.graphs import Graph


class OwnEngine:
    """Captures by itself, as engines do, in functions of its own."""

    def __init__(self, framework: Framework, session: foundry.Session) -> None:
        self.framework, self.session = framework, session
        self.captures = 0
        self.graphs: dict[str, Graph] = {}
        self.handles: dict[str, Any] = {}

    def load(self, input_bytes: int = 32, mutable_drift: bool = False) -> None:
        s = self.session
        with s.phase("weights"):
            self.w = s.register("w", self.framework.tensor(WEIGHTS["w0"]))
        with s.phase("inputs"):
            if mutable_drift:
                self.extra = self.framework.tensor(bytes(32))
            self.x = s.register("x", self.framework.tensor(bytes(input_bytes)), mutable=True)

    def forward(self, n: int) -> FakeTensor:
        return self.framework.add(self.x[:n], self.w[:n])

    def capture(self, name: str, function: Callable[[], Any]) -> None:
        graph = self.session.restored(name)
        if graph is None:
            self.captures += 1
            outputs: list[Any] = []
            with self.session.capturing():
                made = self.framework.capture_into(
                    self.session.graph_pool(), lambda: outputs.append(function()) or outputs[0]
                )
            graph = self.session.adopt(name, made, outputs[0])
            made.instantiate()
        self.graphs[name] = graph

    def check(self) -> None:
        for seed in (3, 77):
            self.x.data = bytes((i * seed) & 255 for i in range(32))
            for name, graph in self.graphs.items():
                n = int(name)
                graph.replay()
                expected = bytes((a + b) & 255 for a, b in zip(self.x.data, WEIGHTS["w0"], strict=True))[:n]
                assert graph.outputs.data == expected

    def start(self, names: tuple[str, ...] = ("32", "8"), **drift: Any) -> OwnEngine:
        self.session.begin()
        try:
            self.load(**drift)
            for name in names:
                self.capture(name, lambda n=int(name): self.forward(n))  # type: ignore[misc]
        except BaseException as problem:
            self.session.end(problem)
            raise
        self.session.end()
        return self


def own(world: World, mode: str, hook: bool = False, **options: Any) -> OwnEngine:
    fake_core.new_process(hook=hook)
    framework = Framework()
    return OwnEngine(framework, world.session(framework, mode, **options))


def test_save_and_load(world: World) -> None:
    engine = own(world, "save", hook=True).start()
    engine.check()
    assert engine.session.report.saved == ["32", "8"] and engine.captures == 2
    engine = own(world, "load").start()
    engine.check()
    report = engine.session.report
    assert (report.outcome, report.restored, engine.captures) == ("restored", ["32", "8"], 0)
    assert not report.fell_back and not report.unused


def test_captures_use_the_zone_and_no_phase(world: World) -> None:
    engine = own(world, "save", hook=True)
    framework = engine.framework
    with engine.session as s:
        engine.load()
        with s.phase("other"):
            engine.capture("8", lambda: engine.forward(8))
            assert framework.zone is not None  # the phase goes on
        slot = s.graph_pool()
        assert fake_core.process.zones[slot].name == "graphs"
        assert fake_core.in_zone(engine.graphs["8"].outputs.address) == slot
        assert f"capturing into {slot}" in framework.log


def test_capture_that_fails_resumes_the_phase(world: World) -> None:
    engine = own(world, "save", hook=True)
    with engine.session as s, s.phase("weights"):
        with pytest.raises(ZeroDivisionError), s.capturing():
            assert engine.framework.zone is None
            raise ZeroDivisionError
        assert engine.framework.zone is not None


def test_outputs_are_not_kept(world: World) -> None:
    engine = own(world, "save", hook=True)
    with engine.session as s:
        engine.load()
        outputs: list[Any] = []
        with s.capturing():
            graph = engine.framework.capture_into(s.graph_pool(), lambda: outputs.append(engine.forward(8)))
        graph.outputs = None
        s.adopt("8", graph, {"hidden": outputs[0]})
        gone = weakref.ref(outputs.pop().storage)
        gc.collect()
        assert gone() is None
        graph.instantiate()
    engine = own(world, "load").start(("8",))
    engine.x.data = bytes(32)
    engine.graphs["8"].replay()
    assert engine.graphs["8"].outputs["hidden"].data == WEIGHTS["w0"][:8]


def test_same_rules_as_for_graphs_of_the_session(world: World) -> None:
    engine = own(world, "save", hook=True, golden=True)
    fake_core.process.unsupported.add("8")
    framework, s = engine.framework, engine.session
    with s:
        engine.load()
        engine.capture("8", lambda: engine.forward(8))
        engine.capture("32", lambda: engine.forward(32))
        with pytest.raises(foundry.FoundryError, match="needs a name of its own"):
            engine.capture("8", lambda: engine.forward(8))
        fake_core.process.ambient = None
        outside = framework.alloc(2000)
        s.adopt("foreign", framework.capture_into(s.graph_pool(), lambda: None), outside)
        s.adopt("object", framework.capture_into(s.graph_pool(), lambda: None), object())
    report = s.report
    assert report.saved == ["32"] == report.golden
    assert set(report.left_out) == {"8", "foreign", "object"}
    assert "did not see allocated" in report.left_out["foreign"][0]
    with pytest.raises(foundry.FoundryError, match="host node"):
        engine = own(world, "save", hook=True, strict=True)
        fake_core.process.unsupported.add("8")
        engine.start()


def test_random_numbers(world: World) -> None:
    drawn = {}
    for mode, hook in (("save", True), ("load", False)):
        engine = own(world, mode, hook)
        engine.session.begin()
        engine.load()
        engine.capture("r", lambda engine=engine: engine.framework.random(16))
        engine.session.end()
        engine.framework.manual_seed(42)
        found = []
        for _ in range(2):
            engine.graphs["r"].replay()
            found.append(engine.graphs["r"].outputs.data)
        drawn[mode] = found
        assert engine.captures == (mode == "save")
    assert drawn["save"] == drawn["load"]


def test_graph_that_the_archive_lacks(world: World) -> None:
    own(world, "save", hook=True).start()
    engine = own(world, "load").start(("32", "8", "16"))
    engine.check()
    report = engine.session.report
    assert engine.captures == 1 and report.restored == ["32", "8"]
    assert report.fell_back == {"16": "the archive does not have it"}


def test_graph_that_cannot_be_restored(world: World) -> None:
    own(world, "save", hook=True).start()
    engine = own(world, "load")
    fake_core.process.broken.add("32")
    engine.start().check()
    report = engine.session.report
    assert engine.captures == 1 and report.restored == ["8"] and list(report.fell_back) == ["32"]
    engine = own(world, "load", on_mismatch="fail")
    fake_core.process.broken.add("32")
    with pytest.raises(foundry.FoundryError, match="cannot be instantiated"):
        engine.start()


def test_own_captures_wait_for_the_restore(world: World) -> None:
    """An engine's capture mode may forbid what restore threads do."""
    own(world, "save", hook=True).start()
    engine = own(world, "load")
    with engine.session as s:
        engine.load()
        with s.capturing():
            assert fake_core.process.waited == {0, 1}


def test_mutable_tensor_elsewhere(world: World) -> None:
    own(world, "save", hook=True).start()
    engine = own(world, "load").start(mutable_drift=True)
    engine.check()
    assert engine.session.report.outcome == "native" and engine.captures == 2
    with pytest.raises(foundry.FoundryError, match="mutable"):
        own(world, "load", on_mismatch="fail").start(mutable_drift=True)


def test_restored_handles_are_the_same_and_taken(world: World) -> None:
    own(world, "save", hook=True).start()
    engine = own(world, "load")
    with engine.session as s:
        engine.load()
        first = s.restored("8")
        assert first is not None and s.restored("8") is first
        with pytest.raises(foundry.FoundryError, match="needs a name of its own"):
            s.graph("8", lambda: None)
    # After the end, too.
    assert s.restored("32") is not None and s.restored("none") is None


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_native(world: World, mode: str) -> None:
    engine = own(world, mode).start()
    engine.check()
    assert engine.captures == 2 and engine.session.report.native == ["32", "8"]


def test_begin_and_end_in_threads(world: World) -> None:
    engine = own(world, "save", hook=True)
    for step in (engine.session.begin, engine.load, lambda: engine.capture("8", lambda: engine.forward(8))):
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
    engine.session.end()
    assert engine.session.report.saved == ["8"]
    engine.session.end(RuntimeError("too late"))
    assert engine.session.report.outcome == "saved"


def test_end_with_an_error_publishes_nothing(world: World) -> None:
    engine = own(world, "save", hook=True)
    engine.session.begin()
    engine.load()
    engine.session.end(RuntimeError("out of memory"))
    assert engine.session.report.reason == "the block ended with RuntimeError: out of memory"
    assert not world.archive.exists()


def test_end_without_begin(world: World) -> None:
    with pytest.raises(RuntimeError, match="with"):
        own(world, "save", hook=True).session.end()
