"""A session that begins in one function of an engine and ends in another: SAVE, LOAD, native, and what goes wrong."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_core
import pytest
from fake_framework import FakeTensor, Framework, Module
from fake_torch import FakeTorch

import foundry.torch
from foundry.engines.common import starting
from foundry.engines.common.starting import EngineStart

FIELDS = {"engine": "1.0"}


class Buffers:
    """An engine's object."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Engine:
    """An engine's start with the calls that an adapter makes, in a process of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mode: str, hook: bool = False, **environment: str) -> None:
        fake_core.new_process(hook=hook)
        monkeypatch.setenv("FOUNDRY_MODE", mode)
        for name, value in environment.items():
            monkeypatch.setenv(f"FOUNDRY_{name}", value)
        monkeypatch.setattr("foundry.api._active", None)
        self.framework = Framework()
        monkeypatch.setattr(foundry.torch, "_runtime", self.framework)
        self.said: list[str] = []
        self.captures = 0
        self.start = EngineStart(self.said.append, lambda module: module == __name__)
        self.graphs: dict[str, Any] = {}

    def load(self, weight: bytes = bytes(range(32))) -> None:
        with self.start.phase("weights"):
            self.model = Module(w=self.framework.tensor(weight))
        self.start.register_module("model", self.model)
        with self.start.phase("buffers"):
            self.buffers = Buffers(x=self.framework.tensor(bytes(32)), more=[self.framework.tensor(bytes(8))])
        self.outside = self.framework.tensor(bytes(8))
        self.buffers.outside = self.outside
        self.start.register_reachable("buffers", self.buffers)

    def capture(self, name: str = "g") -> None:
        graph = self.start.restored(name)
        if graph is None:
            self.captures += 1
            made = self._capture()
            self.start.adopt(name, made, made.outputs)
            made.instantiate()
            graph = made
        self.graphs[name] = graph

    def _capture(self) -> Any:
        session = self.start._session
        if session is None:
            return self.framework.capture_into(None, self.forward)
        with session.capturing():
            return self.framework.capture_into(session.graph_pool(), self.forward)

    def forward(self) -> FakeTensor:
        return self.framework.add(self.buffers.x, self.model.tensors["w"])

    def check(self) -> None:
        self.buffers.x.data = bytes((i * 7) & 255 for i in range(32))
        want = bytes((a + b) & 255 for a, b in zip(self.buffers.x.data, range(32), strict=True))
        for graph in self.graphs.values():
            graph.replay()
            assert graph.outputs.data == want

    def run(self, fields: Any = FIELDS) -> Engine:
        self.start.begin(fields)
        self.load()
        self.capture()
        self.start.end()
        return self

    def states(self, fields: Any = FIELDS) -> list[str]:
        """After begin, capture and end."""
        found = []
        self.start.begin(fields)
        found.append(self.start.state)
        self.load()
        self.capture()
        found.append(self.start.state)
        self.start.end()
        return [*found, self.start.state]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(mode: str, hook: bool = False, **environment: str) -> Engine:
        return Engine(monkeypatch, mode, hook, **environment)

    return make


def natively(said: list[str]) -> list[str]:
    return [line for line in said if "natively" in line]


def test_save_then_load(engine: Any) -> None:
    saved = engine("save", hook=True)
    assert saved.states() == ["save", "save", "native"]
    saved.check()
    assert saved.said[0].startswith("saving to ") and "saved 1 graph" in saved.said[-1]
    assert saved.start.report.saved == ["g"]
    loaded = engine("load")
    assert loaded.states() == ["load", "load", "load"]
    loaded.check()
    assert loaded.captures == 0
    assert loaded.said[0].startswith("restoring from ") and "restored 1 graph" in loaded.said[-1]
    assert loaded.start.loads() and natively(loaded.said) == []


def test_without_foundry_nothing_happens(engine: Any) -> None:
    off = engine("off")
    assert off.states() == ["native"] * 3
    off.check()
    assert off.said == ["serving natively: Foundry is off"]


def test_an_archive_of_something_else(engine: Any) -> None:
    engine("save", hook=True).run()
    other = engine("load").run({"engine": "2.0"})
    other.check()
    assert other.captures == 1 and other.start.state == "native"
    (said,) = natively(other.said)
    assert all(text in said for text in ("engine", "1.0", "2.0", "must be equal"))
    assert other.said == [said]
    with pytest.raises(fake_core.FoundryError, match=r"2\.0"):
        engine("load", ON_MISMATCH="fail").run({"engine": "2.0"})


@pytest.mark.parametrize("mode", ["load", "auto", "save"])
@pytest.mark.parametrize("fail", [False, True], ids=["fallback", "fail"])
def test_a_session_that_cannot_begin(engine: Any, mode: str, fail: bool) -> None:
    """Nothing to load, or no hook to save with: an error for who asked for it, one line for the others."""
    made = engine(mode, ON_MISMATCH="fail" if fail else "fallback")
    if mode == "save" or fail:
        with pytest.raises(fake_core.FoundryError):
            made.run()
        assert made.start.state == "native"
    else:
        made.run().check()
        assert len(natively(made.said)) == len(made.said) == 1


def broken_fields() -> dict[str, object]:
    raise AttributeError("'Config' object has no attribute 'size'")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (broken_fields, "has no attribute 'size'"),
        ({"gpu_name": "mine"}, "is Foundry's own"),
        ({"what": object()}, "give text, a number or what JSON can write"),
    ],
    ids=["a function that fails", "a name that is taken", "a value that cannot be written"],
)
def test_a_fingerprint_that_cannot_be_taken(engine: Any, fields: Any, sentence: str) -> None:
    made = engine("auto", hook=True).run(fields)
    made.check()
    (said,) = made.said
    assert said.startswith("serving natively: begin: ") and sentence in said
    with pytest.raises((AttributeError, ValueError), match=sentence):
        engine("save", hook=True).run(fields)
    # Another session can begin: nothing was left behind.
    engine("save", hook=True).run().check()


def test_no_archive_is_named(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOUNDRY_ARCHIVE")
    made = engine("load").run()
    (said,) = made.said
    assert said.startswith("serving natively: begin: no archive is named: ") and "foundry run --archive DIR" in said


def test_fields_may_be_asked_for(engine: Any) -> None:
    engine("save", hook=True).run(lambda: FIELDS)
    assert engine("load").run(FIELDS).start.state == "load"


def test_only_tensors_of_phases_are_registered_each_once(engine: Any) -> None:
    made = engine("save", hook=True)
    made.start.begin(FIELDS)
    made.load()
    made.start.register_reachable("buffers", made.buffers)
    made.start.register_reachable("again", made.buffers)
    made.start.register_module("again", made.model)
    session = made.start._session
    assert [(a.name, a.mutable) for a in session._declared.anchors] == [
        ("model.w", False),
        ("buffers.x", True),
        ("buffers.more[0]", True),
    ]
    made.start.end()


def test_an_attribute_that_is_replaced_has_a_name_of_its_own(engine: Any) -> None:
    def replaced(made: Engine) -> None:
        made.start.begin(FIELDS)
        made.load()
        for size in (16, 24):
            with made.start.phase("buffers"):
                made.buffers.x = made.framework.tensor(bytes(size))
            made.start.register_reachable("buffers", made.buffers)
        with made.start.phase("buffers"):
            made.buffers.x = made.framework.tensor(bytes(32))
        made.start.register_reachable("buffers", made.buffers)
        made.capture()
        names = [anchor.name for anchor in made.start._session._declared.anchors]
        assert names[1:] == ["buffers.x", "buffers.more[0]", "buffers.x#2", "buffers.x#3", "buffers.x#4"]
        made.start.end()
        made.check()

    replaced(engine("save", hook=True))
    loaded = engine("load")
    replaced(loaded)
    assert loaded.captures == 0


def test_a_name_that_looks_like_a_second_one(engine: Any) -> None:
    made = engine("save", hook=True)
    made.start.begin(FIELDS)
    with made.start.phase("buffers"):
        a, b, c = (made.framework.tensor(bytes(8)) for _ in range(3))
    for name, tensor in (("x#2", a), ("x", b), ("x", c)):
        made.start._register(name, tensor, mutable=True)
    assert [anchor.name for anchor in made.start._session._declared.anchors] == ["x#2", "x", "x#3"]
    made.start.end()


def test_what_goes_wrong_while_registering(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise RuntimeError("buffers reaches more than 5 objects")

    monkeypatch.setattr(starting.Walker, "tensors", fails)
    made = engine("auto", hook=True).run()
    made.check()
    assert made.start.state == "native"
    assert "serving natively: register: buffers reaches more than 5 objects" in made.said
    with pytest.raises(RuntimeError, match="more than 5"):
        engine("save", hook=True).run()


def test_giving_up_in_the_middle(engine: Any, tmp_path: Path) -> None:
    made = engine("save", hook=True)
    made.start.begin(FIELDS)
    with made.start.phase("weights"):
        made.start.give_up(RuntimeError("the engine ran out of memory"))
        inside = made.framework.tensor(bytes(8))
    assert made.start.state == "native" and made.start.notes == {}
    assert "ran out of memory" in made.start.report.reason
    made.load()
    made.capture()
    made.start.end()
    made.start.give_up(RuntimeError("again"))
    made.check()
    assert inside.data == bytes(8)
    assert list(tmp_path.iterdir()) == []
    engine("save", hook=True).run().check()


@pytest.mark.parametrize("mode", ["save", "load"])
def test_refusing(engine: Any, mode: str) -> None:
    engine("save", hook=True).run()
    made = engine(mode, hook=mode == "save")
    made.start.begin(FIELDS)
    made.start.refuse("this model has no layers")
    assert made.start.state == "native"
    assert made.said[-1] == "serving natively: this model has no layers"
    failing = engine(mode, hook=mode == "save", ON_MISMATCH="fail")
    failing.start.begin(FIELDS)
    with pytest.raises(RuntimeError, match="^Foundry: this model has no layers$"):
        failing.start.refuse("this model has no layers")


def test_refusing_before_it_began(engine: Any) -> None:
    made = engine("save", hook=True)
    made.start.refuse("no")
    assert made.said == ["serving natively: no"]
    made.start.end()


def test_notes_come_back(engine: Any) -> None:
    made = engine("save", hook=True)
    made.start.begin(FIELDS)
    made.start.notes.update(bytes=5, name="x", ratio=0.5, yes=True)
    made.load()
    made.capture()
    made.start.end()
    loaded = engine("load")
    loaded.start.begin(FIELDS)
    assert loaded.start.notes == {"bytes": 5, "name": "x", "ratio": 0.5, "yes": True}
    assert engine("off").start.notes == {}


def test_exports_and_events_come_back(engine: Any) -> None:
    saved = engine("save", hook=True)
    saved.start.begin(FIELDS)
    saved.load()
    assert saved.start.exported("hidden") is None
    hidden = saved.framework.tensor(b"hidden..")
    saved.start.export("hidden", hidden)
    saved.capture()
    saved.start.end()
    loaded = engine("load")
    loaded.start.begin(FIELDS)
    loaded.load()
    assert loaded.start.exported("hidden").data == b"hidden.."
    assert loaded.start.exported("other") is None
    assert loaded.start.event("none") is None
    loaded.start.export("hidden", hidden)  # nothing on LOAD
    off = engine("off")
    off.start.export("hidden", hidden)
    off.start.register_event("e", object())
    assert off.start.exported("hidden") is None and off.start.event("e") is None


def test_warm_up_is_private_on_save_only(engine: Any) -> None:
    made = engine("save", hook=True)
    made.start.begin(FIELDS)
    with made.start.private("profile"):
        scratch = made.framework.tensor(bytes(8))
    assert not made.start._session.in_phase(scratch)
    assert fake_core.in_zone(scratch.address) is not None
    made.load()
    made.capture()
    made.start.end()
    loaded = engine("load")
    loaded.start.begin(FIELDS)
    with loaded.start.private("profile"):
        assert fake_core.in_zone(loaded.framework.tensor(bytes(8)).address) is None


def test_an_anchor_that_moved_is_known_after_finish(engine: Any) -> None:
    engine("save", hook=True).run()
    loaded = engine("load")
    loaded.start.begin(FIELDS)
    with loaded.start.phase("buffers"):
        loaded.extra = loaded.framework.tensor(bytes(32))
    loaded.load()
    loaded.start.finish()
    assert loaded.start.state == "native" and not loaded.start.loads()
    loaded.capture()
    loaded.start.end()
    loaded.check()
    assert loaded.captures == 1
    failing = engine("load", ON_MISMATCH="fail")
    failing.start.begin(FIELDS)
    with failing.start.phase("buffers"):
        failing.extra = failing.framework.tensor(bytes(32))
    failing.load()
    with pytest.raises(fake_core.FoundryError, match="mutable"):
        failing.start.finish()
    assert failing.start.state == "native"


def test_the_constructor_is_given_back(engine: Any, torch: FakeTorch) -> None:
    original = torch.cuda.CUDAGraph
    made = engine("save", hook=True)
    with made.start.substituted():
        assert torch.cuda.CUDAGraph is original
    made.start.begin(FIELDS)
    with pytest.raises(KeyError), made.start.substituted():
        assert torch.cuda.CUDAGraph is not original and issubclass(torch.cuda.CUDAGraph, original)
        raise KeyError("a capture failed")
    assert torch.cuda.CUDAGraph is original
    made.start.give_up(RuntimeError("over"))
    with made.start.substituted():
        assert torch.cuda.CUDAGraph is original


def test_the_log_is_the_engines_meanwhile_and_as_before_afterwards(engine: Any, caplog: Any) -> None:
    log = logging.getLogger("foundry")
    before = (log.level, log.propagate, list(log.handlers))
    made = engine("save", hook=True)
    made.start.begin(FIELDS)
    log.warning("graph %s is not saved", "g")
    made.load()
    made.capture()
    made.start.end()
    assert "graph g is not saved" in made.said
    assert (log.level, log.propagate, list(log.handlers)) == before
    made = engine("load", ARCHIVE="/nowhere")
    made.run()
    assert (log.level, log.propagate, list(log.handlers)) == before


def test_who_must_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for mode, reaction, must in (
        ("save", "fallback", True),
        ("load", "fallback", False),
        ("auto", "fallback", False),
        ("load", "fail", True),
        ("", "", False),
    ):
        monkeypatch.setenv("FOUNDRY_MODE", mode)
        monkeypatch.setenv("FOUNDRY_ON_MISMATCH", reaction)
        assert starting.must_raise() == must


def test_objects_of_other_modules_are_not_walked_into(engine: Any) -> None:
    made = engine("save", hook=True)
    made.start.begin(FIELDS)
    with made.start.phase("buffers"):
        foreign = SimpleNamespace(t=made.framework.tensor(bytes(8)))
    made.start.register_reachable("r", Buffers(foreign=foreign))
    assert list(made.start._session._declared.anchors) == []
    made.start.end()
