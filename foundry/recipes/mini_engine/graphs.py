"""Capture of a function into a graph with private memory, in torch's order of steps."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from foundry.recipes.mini_engine.driver import CAPTURE_THREAD_LOCAL
from foundry.runtime import GeneratorUse

if TYPE_CHECKING:
    from foundry.recipes.mini_engine.allocator import PoolId
    from foundry.recipes.mini_engine.device import Device

# What the generator's words hold while SAVE looks for them.
PROBE_SEED = 0x5EED_F00D_1234_5677
PROBE_OFFSET = 0x0FF5_E7A1_B2C0


class CapturedGraph:
    """A captured graph, a `foundry.runtime.NativeGraph`.

    `outputs` is what the function returned; its memory belongs to the pool. Nodes are counted in `node_count`.
    """

    def __init__(self, device: Device, graph: int, outputs: Any, pool: PoolId, increment: int) -> None:
        self._device = device
        self._graph = graph
        self._exec = 0
        self._pool = pool
        self.outputs = outputs
        self._increment = increment
        self.node_count = device.driver.graph_node_count(graph)

    def raw(self) -> int:
        """The CUgraph, valid until `instantiate`."""
        if self._graph == 0:
            raise RuntimeError("the graph was instantiated, its CUgraph is gone")
        return self._graph

    def generator(self) -> GeneratorUse | None:
        """Writes values to the generator's words that can be found again; nothing is replayed."""
        generator, stream = self._device.generator, self._device.stream
        if self._increment == 0:
            return None
        assert generator.seed_word is not None and generator.offset_word is not None  # this graph is registered
        before = generator.seed, generator.offset
        generator.seed, generator.offset = PROBE_SEED, PROBE_OFFSET
        generator.write_words(generator.seed_word.address, generator.offset_word.address, 0, stream)
        generator.seed, generator.offset = before
        self._device.synchronize()
        return GeneratorUse(self._increment, PROBE_SEED, PROBE_OFFSET)

    def instantiate(self) -> None:
        """Makes the graph launchable; a second call does nothing."""
        if self._exec == 0:
            self._exec = self._device.driver.instantiate(self.raw())
            self._device.driver.graph_destroy(self._graph)
            self._graph = 0

    def replay(self) -> None:
        """Launches the graph on the current stream, instantiating it first if need be."""
        self.instantiate()
        self._device.generator.before_replay(self._increment, self._device.stream)
        self._device.driver.graph_launch(self._exec, self._device.stream)

    def close(self) -> None:
        """Destroys the graph and gives up its use of pool and generator. Outputs must not be used afterwards."""
        if self._exec:
            self._device.driver.exec_destroy(self._exec)
        if self._graph:
            self._device.driver.graph_destroy(self._graph)
        if self._exec or self._graph:
            self._device.generator.unregister()
            self._device.allocator.release_pool(self._pool)
        self._exec = self._graph = 0
        self.outputs = None


def capture(device: Device, function: Callable[[], Any], pool: PoolId, stream: int) -> CapturedGraph:
    """Captures `function` on `stream` with its memory from `pool`; nothing of it runs.

    As torch.cuda.graph does: wait, collect garbage, empty the cache, register the generator (in the default pool),
    then route this stream's allocations to the pool and begin.
    """
    driver, allocator, generator = device.driver, device.allocator, device.generator
    device.synchronize()
    gc.collect()
    allocator.empty_cache()
    with device.on_stream(stream):
        generator.register()
        allocator.retain_pool(pool)
        try:
            with allocator.use_pool(pool, lambda where: where == stream):
                driver.begin_capture(stream, CAPTURE_THREAD_LOCAL)
                generator.begin_capture()
                try:
                    outputs = function()
                except BaseException:
                    _abandon(device, stream)
                    raise
                increment = generator.end_capture()
                graph = driver.end_capture(stream)
            return CapturedGraph(device, graph, outputs, pool, increment)
        except BaseException:
            allocator.release_pool(pool)
            generator.unregister()
            raise


def _abandon(device: Device, stream: int) -> None:
    """Ends a capture whose function failed; the stream can be used again."""
    device.generator.end_capture()
    try:
        graph = device.driver.end_capture(stream)
    except RuntimeError:
        return  # invalidated: the driver gives no graph, and the function's own error is the one to report
    if graph:
        device.driver.graph_destroy(graph)
