"""A small start of the mini engine for tests: one process, one mode; what it found goes to a JSON file."""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import foundry
from foundry.recipes import simulated
from foundry.recipes.mini_engine.arrays import DeviceArray
from foundry.recipes.mini_engine.engine import EngineConfig
from foundry.recipes.mini_engine.model import ScaleArgs
from foundry.recipes.mini_engine.with_foundry import FoundryEngine

sys.path.insert(0, str(Path(__file__).parent))

from lazy import LazyGraphs, look_up  # noqa: E402

SIZES = (1, 4)
PROMPTS = [[1, 2, 3], [9, 8, 7, 6]]
WIDTH = 64
FLOATS = 4096
NOWHERE = 1 << 30  # as an index: beyond everything


class TestEngine(FoundryEngine):
    """Options, all but `tamper` and `lazy` on SAVE:

    stale: "<what>-<where>": graphs with an address of freed memory in their arguments. what: "unused" (the kernel
        ignores it), "read", "written"; where: "inactive" (the engine's allocator has the block), "quarantined" (given
        back to the driver), "released" (unmapped).
    noise: added to the logits of a graph after each of its replays, in turn.
    tamper: LOAD gets other weights.
    lazy: also the graphs of LazyGraphs.
    spoil: after captures the input buffers hold indices that lead nowhere, until the session is over.
    move: an input of integers gets other memory after the engine's graphs were captured, and a constant gets what it had.
    """

    __test__ = False

    def __init__(
        self,
        archive: str,
        mode: str,
        stale: list[str],
        noise: list[float],
        tamper: bool,
        lazy: bool,
        spoil: bool,
        move: bool,
        **options: Any,
    ) -> None:
        super().__init__(simulated.folder(), EngineConfig(batch_sizes=SIZES, cache_pages=64), archive, mode, **options)
        self.stale = stale
        self.noise = noise
        self.tamper = tamper
        self.lazy = LazyGraphs(self) if lazy else None
        self.spoil = spoil
        self.move = move
        self.freed: dict[str, tuple[int, bytes]] = {}
        self.words: dict[str, foundry.Graph] = {}
        self.constant: DeviceArray | None = None

    def load_weights(self) -> None:
        """A weight that is another one."""
        super().load_weights()
        if self.tamper:
            self.model.weights["norm"].upload([3.0] * self.model.weights["norm"].size)

    def capture_all(self) -> None:
        """The engine's graphs, then those with stale words."""
        lengths = self.register_lengths() if self.move else None
        if lengths is not None and self.restoring:
            self.constant = self.move_lengths(lengths)
        super().capture_all()
        if lengths is not None and self.constant is None:
            self.constant = self.move_lengths(lengths)
        for name in self.stale:
            what, where = name.split("-")
            address = self.free_memory(where) if self.session.report.outcome == "saving" else 0
            self.words[name] = self.session.graph(name, partial(self.with_word, what, address), warmup=0)
        if self.lazy:
            self.lazy.capture(self.session)
        if self.noise and self.session.report.outcome == "saving":
            graph = self.graphs[SIZES[0]]
            native = graph._native  # type: ignore[attr-defined]
            native.replay = noisy(native.replay, graph.outputs.logits, iter(self.noise))
        if self.spoil:
            self.fill_buffers(NOWHERE)

    def register_lengths(self) -> DeviceArray:
        """An input that no graph reads."""
        with self.session.phase("lengths"):
            return self.session.register("lengths", self.device.array((WIDTH,), [1] * WIDTH, "int32"), mutable=True)

    def move_lengths(self, lengths: DeviceArray) -> DeviceArray:
        """The constant."""
        before = lengths.storage
        with self.session.phase("lengths"):
            lengths.storage = self.device.array((WIDTH,), [2] * WIDTH, "int32").storage
        self.device.synchronize()
        return self.session.register("constant", DeviceArray(before, (WIDTH,)).upload([3.0] * WIDTH))

    def fill_buffers(self, value: int) -> None:
        """Writes it into every input buffer."""
        assert self.buffers is not None
        self.device.synchronize()
        for buffer in self.buffers.named().values():
            buffer.upload([value] * buffer.size)

    def free_memory(self, where: str) -> int:
        """The address of memory that is no tensor any more."""
        content = struct.pack(f"<{FLOATS}f", *(i % 7 for i in range(FLOATS)))
        if where == "quarantined":
            address = self.device.driver.malloc(len(content))
            self.device.driver.upload(address, content)
            self.device.driver.free(address)
        elif where == "released":
            with self.session.phase("scratch"):
                address = self.device.empty((FLOATS,)).upload(content).address
        else:
            address = self.device.empty((FLOATS,)).upload(content).address
            self.freed[where] = address, content
        return address

    def with_word(self, what: str, address: int) -> DeviceArray:
        """scale_bias reads its bias only if the kind is 'b', and writes y."""
        out = self.device.zeros((WIDTH,))
        weight = self.model.weights["norm"]
        look_up(self)
        self.kernels.launch("add", (1, 1, 1), WIDTH, out, weight, min(WIDTH, weight.size))
        kind, y = (b"b" if what == "read" else b"s"), (address if what == "written" else out.address)
        self.kernels.launch("scale_bias", (1, 1, 1), WIDTH, ScaleArgs(kind, y, 1, address, 2.0, WIDTH), packed=True)
        return out

    def computed(self) -> dict[str, str]:
        """What graphs with an unused stale word compute."""
        found = {}
        for name, graph in self.words.items():
            if name.startswith("unused"):
                graph.replay()
                found[name] = hashlib.sha256(graph.outputs.to_bytes()).hexdigest()
        return found

    def intact(self) -> bool:
        """Whether freed memory that is still mapped holds what it held."""
        return all(self.device.driver.download(a, len(content)) == content for a, content in self.freed.values())


def noisy(replay: Callable[[], None], logits: DeviceArray, noise: Any) -> Callable[[], None]:
    """As if the order of additions changed from replay to replay."""

    def act() -> None:
        replay()
        amount = next(noise, None)
        if amount is not None:
            values = [float(value) for value in logits.to_list()]
            logits.upload([values[0] + amount, *values[1:]])

    return act


def exports(engine: FoundryEngine) -> dict[str, Any]:
    """The persistent output of forwards as this process has it right after its start."""
    hidden = engine.session.exported("hidden_states")
    return {
        "address": hidden.address,
        "shape": list(hidden.shape),
        "content": hashlib.sha256(hidden.to_bytes()).hexdigest(),
        "zero": not any(hidden.to_bytes()),
        "same": engine.model.hidden_states is hidden,
    }


def inputs(engine: FoundryEngine) -> str:
    """A hash of mutable memory."""
    assert engine.buffers is not None
    arrays = [*engine.buffers.named().values(), *engine.model.keys, *engine.model.values]
    return hashlib.sha256(b"".join(array.to_bytes() for array in arrays)).hexdigest()


def main(mode: str, archive: str, out: str, text: str = "{}") -> int:
    """Runs the start and writes results."""
    options = {
        "stale": [],
        "noise": [],
        "tamper": False,
        "lazy": False,
        "spoil": False,
        "move": False,
        **json.loads(text),
    }
    engine = TestEngine(archive, mode, **options)
    results: dict[str, Any] = {}
    try:
        engine.start()
    except foundry.FoundryError as problem:
        results["error"] = str(problem)
    else:
        results["intact"] = engine.intact()
        results["inputs"], results["steps"] = inputs(engine), engine.kernels.step_count()
        results["constant"] = engine.constant.to_list() if engine.constant is not None else []
        if engine.spoil:
            engine.fill_buffers(0)
        results["export"] = exports(engine) if engine.session.report.outcome != "native" else None
        results["computed"] = engine.computed()
        results["lazy"] = engine.lazy.computed() if engine.lazy else {}
        results["tokens"] = engine.generate(PROMPTS, 6)
        results["eager"] = engine.generate(PROMPTS, 6, eager=True)
        results["hidden_after"] = hashlib.sha256(engine.model.hidden_states.to_bytes()).hexdigest()  # type: ignore[union-attr]
    report = engine.session.report
    results |= {
        "outcome": report.outcome,
        "reason": report.reason,
        "saved": report.saved,
        "golden": report.golden,
        "left_out": report.left_out,
        "fell_back": report.fell_back,
        "verdicts": [[v.graph, v.verdict, v.detail] for v in report.verdicts],
        "warnings": report.warnings,
        "milliseconds": report.milliseconds,
    }
    Path(out).write_text(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
