"""An engine that uses a session, and the processes in which it starts, on the stand-ins for core and framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake_core
from fake_framework import FakeTensor, Framework, Module

import foundry
from foundry.graphs import Graph

SIZES = (8, 16, 32)
WEIGHTS = {"w0": bytes(range(32)), "w1": bytes(range(100, 132))}


@dataclass
class Engine:
    """What an engine has after its start."""

    framework: Framework
    session: foundry.Session
    model: Module = field(default_factory=Module)
    x: FakeTensor | None = None
    graphs: dict[int, Graph] = field(default_factory=dict)
    calls: int = 0

    def expected(self, n: int) -> bytes:
        """What graph n computes for the current input."""
        assert self.x is not None
        return bytes((a + b + c) & 255 for a, b, c in zip(self.x.data, WEIGHTS["w0"], WEIGHTS["w1"], strict=True))[:n]

    def check(self) -> None:
        """All graphs compute what they should, for two inputs."""
        assert self.x is not None
        for seed in (3, 77):
            self.x.data = bytes((i * seed) & 255 for i in range(32))
            for n, graph in self.graphs.items():
                graph.replay()
                assert graph.outputs.data == self.expected(n), f"graph {n} with input {seed}"


def start(
    session: foundry.Session,
    framework: Framework,
    order: Sequence[str] = ("w0", "w1"),
    sizes: Sequence[int] = SIZES,
    before: Callable[[Engine], None] = lambda engine: None,
    inside: Callable[[Engine], None] = lambda engine: None,
    before_input: Callable[[Engine], None] = lambda engine: None,
    last: Callable[[Engine], None] = lambda engine: None,
) -> Engine:
    """Runs the engine's start in the session, with places to inject drift."""
    engine = Engine(framework, session)
    before(engine)
    with session as s:
        with s.phase("weights"):
            inside(engine)
            engine.model = Module(**{name: framework.tensor(WEIGHTS[name]) for name in order})
            s.register_module("model", engine.model)
        with s.phase("inputs"):
            before_input(engine)
            engine.x = s.register("x", framework.tensor(bytes(32)), mutable=True)

        def forward(n: int) -> FakeTensor:
            engine.calls += 1
            assert engine.x is not None
            weights = engine.model.tensors
            return framework.add(framework.add(engine.x[:n], weights["w0"][:n]), weights["w1"][:n])

        for n in sizes:
            engine.graphs[n] = s.graph(f"decode/{n}", lambda n=n: forward(n))  # type: ignore[misc]
        last(engine)
    return engine


@dataclass
class World:
    """Processes that come and go, and the disk that stays."""

    archive: Path

    def session(self, framework: Framework, mode: str, **options: Any) -> foundry.Session:
        return foundry.session(self.archive, mode, runtime=framework, **options)

    def save(self, mode: str = "save", session: dict[str, Any] | None = None, **drift: Any) -> Engine:
        """A SAVE in a process of its own."""
        fake_core.new_process(hook=True)
        framework = Framework()
        return start(self.session(framework, mode, **(session or {})), framework, **drift)

    def load(
        self,
        mode: str = "load",
        session: dict[str, Any] | None = None,
        process: dict[str, Any] | None = None,
        prepare: Callable[[Framework], None] = lambda framework: None,
        **drift: Any,
    ) -> Engine:
        """A LOAD in a process of its own, without the hook."""
        fake_core.new_process(**(process or {}))
        framework = Framework()
        prepare(framework)
        return start(self.session(framework, mode, **(session or {})), framework, **drift)
