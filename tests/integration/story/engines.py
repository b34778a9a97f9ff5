"""The engine of the story, and what may differ between its SAVE and its LOAD, each a class of its own; they combine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from foundry import _core
from foundry.recipes.mini_engine import graphs
from foundry.recipes.mini_engine.arrays import DeviceArray
from foundry.recipes.mini_engine.engine import Replayable
from foundry.recipes.mini_engine.model import StepOutputs
from foundry.recipes.mini_engine.with_foundry import FoundryEngine

MIB = 1 << 20


class StoryEngine(FoundryEngine):
    """Warms up with captures of its own, as serving engines do; where graphs are restored none of that happens."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.notes: dict[str, Any] = {"grown": {}, "warm_up_captures": 0, "forwards": 0}
        self.keep: list[DeviceArray] = []

    def forward(self, batch: int, max_length: int | None = None) -> StepOutputs:
        self.notes["forwards"] += 1
        return super().forward(batch, max_length)

    def warm_up(self) -> None:
        """Forwards, then captures that are thrown away. They register the generator, and its words go with them."""
        super().warm_up()
        if self.restoring:
            return
        self.notes["generator_before"] = self.device.generator.seed_word is not None
        for batch in (1, max(self.config.batch_sizes)):
            pool = self.device.allocator.create_pool()
            graph = graphs.capture(self.device, partial(self.forward, batch), pool, self.capture_stream)
            graph.replay()
            self.device.synchronize()
            graph.close()
            self.device.allocator.release_pool(pool)
            self.device.allocator.empty_cache()
            self.notes["warm_up_captures"] += 1
        self.notes["generator_after"] = self.device.generator.seed_word is not None

    def capture(self, name: str, batch: int, function: Callable[[], StepOutputs]) -> Replayable:
        """Notes by how much the segments grew over this capture."""
        before = self._segments()
        graph = super().capture(name, batch, function)
        self.notes["grown"][str(batch)] = self._segments() - before
        return graph

    def _segments(self) -> int:
        return sum(segment.nbytes for segment in self.device.allocator.snapshot())

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Notes what the session has mapped before anything of the engine is allocated."""
        self.notes.setdefault("begun", footprint())
        return super().phase(name)

    def before_serving(self) -> None:
        """After the start, before the first replay."""

    def after_serving(self) -> Any:
        """After everything was computed; the value becomes a result."""


LIVE = ("mapping", "physical", "reservation", "graph", "exec", "library", "event")


def footprint() -> dict[str, Any]:
    """Mapped bytes of every zone, and live objects of the simulated driver."""
    count = ctypes.CDLL("libcuda.so.1").foundry_sim_live
    count.argtypes, count.restype = [ctypes.c_char_p], ctypes.c_uint64
    zones = {zone.name: zone.mapped_bytes for zone in _core.zones()}
    return {"zones": zones, **{kind: count(kind.encode()) for kind in LIVE}}


class ExtraOutside(StoryEngine):
    """2 MiB more before the first graph, outside the phases."""

    def before_capture(self) -> None:
        self.keep.append(self.device.empty((2 * MIB,), "uint8"))


class ExtraBeforeWeights(StoryEngine):
    """2 MiB more in the phase of the weights, before them: a segment that the other side does not have."""

    def load_weights(self) -> None:
        self.keep.append(self.device.empty((2 * MIB,), "uint8"))
        super().load_weights()


class TemporaryBeforeWeights(StoryEngine):
    """512 bytes more in the phase of the weights while they are loaded: the weights of that segment move."""

    def load_weights(self) -> None:
        temporary = self.device.empty((512,), "uint8")
        super().load_weights()
        del temporary


class KeptBeforeWeights(StoryEngine):
    """The same, kept: it stays where a weight was."""

    def load_weights(self) -> None:
        self.keep.append(self.device.empty((512,), "uint8"))
        super().load_weights()


class ExtraBeforeBuffers(StoryEngine):
    """2 MiB more in the phase of the mutable buffers, before them."""

    def create_buffers(self) -> None:
        self.keep.append(self.device.empty((2 * MIB,), "uint8"))
        super().create_buffers()


class EarlyGenerator(StoryEngine):
    """Something registers the generator for good before warm-up."""

    def warm_up(self) -> None:
        self.device.generator.register()
        super().warm_up()


class GeneratorInPhase(StoryEngine):
    """Something registers the generator for good while a phase is current: its words lie in a rebuilt zone."""

    def load_weights(self) -> None:
        super().load_weights()
        self.device.generator.register()


SWAPPED = ("layers.0.gate_up", "layers.1.gate_up")


class SwappedWeights(StoryEngine):
    """Two weights of one size are loaded in each other's place."""

    def weight_order(self) -> list[str]:
        order = super().weight_order()
        first, second = (order.index(name) for name in SWAPPED)
        order[first], order[second] = order[second], order[first]
        return order


class KeepsAddresses(StoryEngine):
    """One of the constant tensors is a table of addresses of weights."""

    def load_weights(self) -> None:
        super().load_weights()
        addresses = [self.model.weights[name].address for name in SWAPPED]
        self.keep.append(self.register("table", self.device.empty((2,), "int64").upload(addresses), constant=True))


class MutableElsewhere(StoryEngine):
    """Another small array of the buffers' phase is created before them, so they land elsewhere."""

    def create_buffers(self) -> None:
        self.keep.append(self.device.empty((3,), "int32"))
        super().create_buffers()


class GrownWorkspace(StoryEngine):
    """A library's workspace in memory of its own: kept for the first graphs, then freed and allocated anew, larger."""

    def before_capture(self) -> None:
        super().before_capture()
        self.library_workspace = self.allocate(4 * MIB)
        self.notes["workspace"] = self.library_workspace

    def capture(self, name: str, batch: int, function: Callable[[], StepOutputs]) -> Replayable:
        if name == "decode/8":
            self.device.synchronize()
            self.release()
            self.library_workspace = self.allocate(8 * MIB)

        def with_workspace() -> StepOutputs:
            outputs = function()
            size, nbytes = outputs.logits.size, outputs.logits.nbytes
            scratch = self.device.adopt(self.library_workspace, outputs.logits.shape, "float32", nbytes)
            self.kernels.launch("add", (-(-size // 128), 1, 1), 128, scratch, outputs.logits, size)
            return outputs

        return super().capture(name, batch, with_workspace)

    def allocate(self, nbytes: int) -> int:
        """A workspace's address."""
        return self.device.driver.malloc(nbytes)

    def release(self) -> None:
        """Frees the workspace that is there."""
        self.device.driver.free(self.library_workspace)

    def before_serving(self) -> None:
        """A native replay of the graphs whose workspace is gone would fault: they are captured anew."""
        if self.session.report.outcome == "saved":
            for batch in (48, 32, 24, 21, 16):
                self.graphs[batch] = self.capture(f"again/{batch}", batch, partial(self.forward, batch))


class GrownCachedWorkspace(GrownWorkspace):
    """The same with a workspace of the engine's allocator, which keeps the segment for its other blocks."""

    def allocate(self, nbytes: int) -> int:
        self.cached = self.device.empty((nbytes,), "uint8")
        if not self.keep:  # another block of its segment
            self.keep.append(self.device.empty((2 * MIB,), "uint8"))
        return self.cached.address

    def release(self) -> None:
        del self.cached
