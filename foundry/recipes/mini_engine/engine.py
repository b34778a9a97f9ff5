"""The engine: a scripted start like an LLM server's, and greedy decoding over the captured graphs.

Every stage is a method that Foundry's session (or a test that injects drift) overrides: `phase`, `register`,
`warm_up`, `capture` and `before_capture`. By themselves they do what an engine without Foundry does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from foundry.recipes.mini_engine.arrays import DeviceArray
from foundry.recipes.mini_engine.device import Device
from foundry.recipes.mini_engine.graphs import capture
from foundry.recipes.mini_engine.kernels import Kernels
from foundry.recipes.mini_engine.model import Buffers, Model, ModelConfig, StepOutputs


class Replayable(Protocol):
    """A captured or restored graph."""

    @property
    def outputs(self) -> Any: ...

    def replay(self) -> None: ...


@dataclass(frozen=True)
class EngineConfig:
    """How the engine starts. `load_threads` above 1 loads weights concurrently, in no particular order."""

    model: ModelConfig = field(default_factory=ModelConfig)
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 21, 24, 32, 48)
    cache_pages: int = 512
    load_threads: int = 1
    warm_up_lengths: tuple[int, ...] = (16, 128)
    warm_up_per_graph: int = 1
    route: str = "dlsym"
    seed: int = 0

    @property
    def max_batch(self) -> int:
        return max(self.batch_sizes)


class MiniEngine:
    """One replica on one device. `images` is the folder of decode.fatbin and assorted.fatbin."""

    def __init__(self, images: Path, config: EngineConfig | None = None, ordinal: int = 0) -> None:
        self.config = config or EngineConfig()
        self.device = Device(ordinal, self.config.route)
        self.device.generator.manual_seed(self.config.seed)
        self.kernels = Kernels(self.device, images)
        self.model = Model(self.device, self.kernels, self.config.model)
        self.buffers: Buffers | None = None
        self.graphs: dict[int, Replayable] = {}
        self._pool: int | None = None
        self._capture_stream = 0
        self._free_pages: list[int] = []

    # --- seams

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Around "weights", "kv_cache" and "buffers"."""
        return nullcontext()

    def register(self, name: str, array: DeviceArray, constant: bool) -> DeviceArray:
        """Called for every array of a phase, once it has its content; the engine uses what this returns."""
        return array

    def before_capture(self) -> None:
        """After warm-up, before the first graph."""

    def capture(self, name: str, batch: int, function: Callable[[], StepOutputs]) -> Replayable:
        """Makes the graph of one batch size; natively: warms up, captures into the shared pool, instantiates."""
        for _ in range(self.config.warm_up_per_graph):
            function()
        graph = capture(self.device, function, self.graph_pool, self.capture_stream)
        graph.instantiate()
        return graph

    @property
    def graph_pool(self) -> int:
        """The pool that all graphs share."""
        if self._pool is None:
            self._pool = self.device.allocator.create_pool()
        return self._pool

    @property
    def capture_stream(self) -> int:
        """The stream that graphs are captured on."""
        if self._capture_stream == 0:
            self._capture_stream = self.device.driver.stream()
        return self._capture_stream

    # --- start

    def start(self) -> None:
        """The whole start, in an LLM server's order."""
        with self.phase("weights"):
            self.load_weights()
        with self.phase("kv_cache"):
            self.create_cache()
        with self.phase("buffers"):
            self.create_buffers()
        self.kernels.set_logit_scale(self.config.model.logit_scale)
        self.warm_up()
        self.before_capture()
        self.capture_all()
        self.device.synchronize()

    def weight_order(self) -> list[str]:
        """The names of the weights in the order of loading."""
        return list(self.config.model.weight_shapes())

    def load_weights(self) -> None:
        """Allocates and fills every weight, on `load_threads` threads."""
        names = self.weight_order()
        count = max(1, self.config.load_threads)
        if count == 1:
            self._load(names)
        else:
            failures: list[BaseException] = []

            def work(part: list[str]) -> None:
                try:
                    self.device.use_on_this_thread()
                    self._load(part)
                except BaseException as error:  # noqa: BLE001 - reported on the main thread
                    failures.append(error)

            threads = [threading.Thread(target=work, args=(names[i::count],)) for i in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if failures:
                raise failures[0]
        weights = self.model.weights
        for name in names:
            weights[name] = self.register(name, weights[name], constant=True)

    def _load(self, names: Sequence[str]) -> None:
        shapes = self.config.model.weight_shapes()
        for name in names:
            array = self.device.array(shapes[name], self.config.model.weight_values(name), "float32")
            self.model.weights[name] = array

    def create_cache(self) -> None:
        """Allocates the paged KV cache, zeroed."""
        c = self.config.model
        shape = (self.config.cache_pages * c.page, c.kv_heads, c.head_dim)
        for i in range(c.layers):
            for kind, caches in (("keys", self.model.keys), ("values", self.model.values)):
                caches.append(self.register(f"cache.{i}.{kind}", self.device.zeros(shape), constant=False))
        self._free_pages = list(range(self.config.cache_pages - 1, -1, -1))

    def create_buffers(self) -> None:
        """Allocates the persistent inputs, filled as padding."""
        arrays = {}
        for name, shape in Buffers.shapes(self.config.model, self.config.max_batch).items():
            array = self.device.empty(shape, "int32")
            array.upload([-1 if name == "slots" else 0] * array.size)
            arrays[name] = self.register(f"inputs.{name}", array, constant=False)
        self.buffers = Buffers(**arrays)

    def warm_up(self) -> None:
        """Eager forwards of the largest and the smallest batch at several lengths (profile run, lazy set-up)."""
        self.model.prepare(self.config.max_batch)
        for length in self.config.warm_up_lengths:
            for batch in (max(self.config.batch_sizes), min(self.config.batch_sizes)):
                self.forward(batch, length)
        self.device.synchronize()

    def capture_all(self) -> None:
        """Makes a graph for every batch size, largest first."""
        for batch in sorted(self.config.batch_sizes, reverse=True):
            self.graphs[batch] = self.capture(f"decode/{batch}", batch, partial(self.forward, batch))

    # --- serving

    def forward(self, batch: int, max_length: int | None = None) -> StepOutputs:
        """One eager step over the buffers on the current stream. Graphs are captured for the longest length."""
        assert self.buffers is not None  # create_buffers() came first
        return self.model.forward(self.buffers, batch, max_length or self.config.model.max_length)

    def write_inputs(self, rows: Sequence[Row]) -> None:
        """Writes the input buffers; rows beyond those given become padding. Waits for earlier steps."""
        assert self.buffers is not None
        spare = self.config.max_batch - len(rows)
        pages = self.config.model.max_pages
        self.device.synchronize()
        self.buffers.ids.upload([row.token for row in rows] + [0] * spare)
        self.buffers.positions.upload([row.position for row in rows] + [0] * spare)
        self.buffers.slots.upload([row.slot(self.config.model.page) for row in rows] + [-1] * spare)
        self.buffers.lengths.upload([row.position + 1 for row in rows] + [0] * spare)
        table: list[int] = []
        for row in rows:
            table += row.pages + [0] * (pages - len(row.pages))
        self.buffers.block_table.upload(table + [0] * (pages * spare))

    def step(self, rows: Sequence[Row], eager: bool = False) -> StepOutputs:
        """One step for these rows, by the smallest graph that holds them, or eagerly."""
        self.write_inputs(rows)
        if eager:
            return self.forward(len(rows))
        size = min((n for n in self.graphs if n >= len(rows)), default=None)
        if size is None:
            raise ValueError(f"no graph holds a batch of {len(rows)}")
        self.graphs[size].replay()
        outputs: StepOutputs = self.graphs[size].outputs
        return outputs

    def generate(
        self, prompts: Sequence[Sequence[int]], steps: int, eager: bool = False, sampled: bool = False
    ) -> list[list[int]]:
        """Decodes `steps` tokens per prompt: greedy, or `sampled` with the default generator.

        Prefill is eager, as in an engine whose graphs are for decode only.
        """
        self.model.prepare(self.config.max_batch)
        with self._pages(prompts, steps) as pages:
            last = []
            for prompt, mine in zip(prompts, pages, strict=True):
                rows = [Row(token, i, mine) for i, token in enumerate(prompt)]
                last.append(self._choose(self.step(rows, eager=True), len(rows), sampled)[-1])
            produced = [[token] for token in last]
            for i in range(1, steps):
                rows = [
                    Row(out[-1], len(p) + i - 1, mine) for out, p, mine in zip(produced, prompts, pages, strict=True)
                ]
                for out, token in zip(produced, self._choose(self.step(rows, eager), len(rows), sampled), strict=True):
                    out.append(token)
        return produced

    def _choose(self, outputs: StepOutputs, rows: int, sampled: bool) -> list[int]:
        return [int(token) for token in (outputs.sampled if sampled else outputs.tokens).to_list()[:rows]]

    @contextmanager
    def _pages(self, prompts: Sequence[Sequence[int]], steps: int) -> Iterator[list[list[int]]]:
        needed = [-(-(len(prompt) + steps) // self.config.model.page) for prompt in prompts]
        if sum(needed) > len(self._free_pages):
            raise MemoryError(f"{sum(needed)} cache pages are needed, {len(self._free_pages)} are free")
        pages = [[self._free_pages.pop() for _ in range(n)] for n in needed]
        try:
            yield pages
        finally:
            for taken in reversed(pages):
                self._free_pages.extend(reversed(taken))


@dataclass(frozen=True)
class Row:
    """One row of a step: the token, its position, and the cache pages of its sequence."""

    token: int
    position: int
    pages: list[int]

    def slot(self, page: int) -> int:
        """The cache slot of this token."""
        return self.pages[self.position // page] * page + self.position % page
