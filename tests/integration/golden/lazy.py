"""Graphs over memory that their first forward creates, outside every phase, as engines do it for scratch and metadata."""

from __future__ import annotations

from collections.abc import Callable

import foundry
from foundry.recipes.mini_engine.arrays import DeviceArray
from foundry.recipes.mini_engine.engine import MiniEngine
from foundry.recipes.mini_engine.model import THREADS, ScaleArgs

WIDTH = 64
KINDS: dict[str, str] = {
    "rewritten": "read by the graph, rewritten by the program: an input that nobody registered",
    "constant": "read by the graph, never written again",
    "scratch": "written by the graph before it reads it, and by the program",
    "shared": "one half is what the graph adds to with every replay, the other the program's",
    "repeated": "one half is what the graph writes, the same each time, the other the program's",
    "unread": "an argument has its address, and no kernel follows it",
    "alike": "rewritten, with what makes no difference this time",
    "state": "what the graph adds to with every replay",
    "output": "read by the graph and rewritten, but the graph returns it: LOAD gives it back",
}


def look_up(engine: MiniEngine) -> None:
    """A kernel whose addresses depend on indices in the engine's input buffers. What it finds is not used."""
    assert engine.buffers is not None
    width, weights = engine.config.model.hidden, engine.model.weights
    found = engine.device.empty((1, width))
    tables = weights["embed.tokens"], weights["embed.positions"]
    buffers = engine.buffers.ids, engine.buffers.positions
    engine.kernels.launch("embedding", (1, 1, 1), THREADS, found, *tables, *buffers, width)


class LazyGraphs:
    """One graph for each kind, named by it."""

    def __init__(self, engine: MiniEngine) -> None:
        self._engine = engine
        self._memory: dict[str, DeviceArray] = {}
        self.graphs: dict[str, foundry.Graph] = {}

    def capture(self, session: foundry.Session) -> None:
        """All of them; then the program does what it does between replays."""
        for kind in KINDS:
            self.graphs[kind] = session.graph(f"lazy/{kind}", self._function(kind), warmup=1)
        session.captured()
        self.between_replays(2.0, first=True)

    def between_replays(self, value: float, first: bool = False) -> None:
        """Writes what the program writes. On LOAD there is memory only where a forward has run."""
        self._engine.device.synchronize()
        for kind, memory in self._memory.items():
            if kind in ("rewritten", "output", "unread") or (kind == "alike" and not first):
                memory.upload([value] * 2 * WIDTH)
            elif kind == "scratch":
                memory.rows(0, WIDTH).upload([value] * WIDTH)
            elif kind in ("shared", "repeated", "alike"):
                memory.rows(WIDTH, 2 * WIDTH).upload([value] * WIDTH)

    def _function(self, kind: str) -> Callable[[], tuple[DeviceArray, ...]]:
        def forward() -> tuple[DeviceArray, ...]:
            engine = self._engine
            if kind not in self._memory:
                self._memory[kind] = engine.device.empty((2 * WIDTH,)).upload([1.0] * 2 * WIDTH)
            memory, weight = self._memory[kind], engine.model.weights["embed.tokens"]
            out = engine.device.zeros((WIDTH,))
            if kind in ("scratch", "repeated"):
                engine.kernels.launch("silu_mul", (1, 1, 1), WIDTH, memory, weight, WIDTH)
            if kind in ("state", "shared"):
                engine.kernels.launch("add", (1, 1, 1), WIDTH, memory, weight, WIDTH)
            if kind == "unread":
                arguments = ScaleArgs(b"s", out.address, 1, memory.address, 2.0, WIDTH)
                engine.kernels.launch("scale_bias", (1, 1, 1), WIDTH, arguments, packed=True)
            look_up(engine)
            engine.kernels.launch("add", (1, 1, 1), WIDTH, out, weight if kind == "unread" else memory, WIDTH)
            return (out, memory) if kind == "output" else (out,)

        return forward

    def computed(self) -> dict[str, list[float]]:
        """The first numbers of what each graph computes for two values that the program writes before."""
        found: dict[str, list[float]] = {}
        for value in (3.0, 5.0):
            self.between_replays(value)
            for kind, graph in self.graphs.items():
                if kind == "output" and kind not in self._memory:
                    self._memory[kind] = graph.outputs[1]
                    self._memory[kind].upload([value] * 2 * WIDTH)
                graph.replay()
                found.setdefault(kind, []).append(graph.outputs[0].to_list()[0])
        return found
