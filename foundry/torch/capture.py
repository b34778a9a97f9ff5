"""Captures with PyTorch's own CUDAGraph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch

from foundry.capturing import announced
from foundry.errors import unsupported
from foundry.runtime import GeneratorUse

if TYPE_CHECKING:
    from foundry.torch.pools import ZonePools
    from foundry.torch.workspaces import Workspaces

# Words in device memory that are searched for: unlikely values. Offsets are multiples of 4.
_PROBE_SEED = 0x5EED_F00D_1234_5677
_PROBE_OFFSET = 0x0FF5_E7A1_B2C0


class TorchGraph:
    """A graph that PyTorch captured."""

    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: Any, device: int, kept: bool) -> None:
        self.outputs = outputs
        self.replay: Callable[[], None] = graph.replay
        self._graph = graph
        self._device = device
        # Without keep_graph PyTorch instantiates at the end of the capture.
        self._ready = not kept

    def raw(self) -> int:
        """The CUgraph, as long as this object lives. Raises FoundryError(kind="unsupported") if PyTorch let it go."""
        try:
            return int(self._graph.raw_cuda_graph())
        except RuntimeError as problem:
            raise unsupported(
                f"PyTorch has no CUgraph of it ({str(problem).splitlines()[0]}): capture it with "
                "torch.cuda.CUDAGraph(keep_graph=True) or foundry.torch.kept_graph.KeptGraph"
            ) from None

    def instantiate(self) -> None:
        """Makes it replayable; does nothing the second time."""
        if not self._ready:
            self._graph.instantiate()
            self._ready = True

    def generator(self) -> GeneratorUse | None:
        """Replays once: PyTorch writes the generator's state to the device before a replay and advances it after.

        Nothing tells beforehand whether and by how much. The generator is left as it was.
        """
        self.raw()  # there are no replays of a graph that cannot be saved
        self.instantiate()
        # The capture wrote the words on its own stream, and on a busy GPU that may come after a replay on another one.
        torch.cuda.synchronize(self._device)
        generator = torch.cuda.default_generators[self._device]
        seed, offset = int(generator.initial_seed()), int(generator.get_offset())
        generator.manual_seed(_PROBE_SEED)
        generator.set_offset(_PROBE_OFFSET)
        try:
            self.replay()
            torch.cuda.synchronize(self._device)
            increment = int(generator.get_offset()) - _PROBE_OFFSET
        finally:
            generator.manual_seed(seed)
            generator.set_offset(offset)
        return GeneratorUse(increment, _PROBE_SEED, _PROBE_OFFSET) if increment else None


class Capturer:
    """Warm-up and capture on a side stream of one device. `pools` is asked for only when a capture uses a zone."""

    def __init__(self, device: int, pools: Callable[[], ZonePools], workspaces: Workspaces) -> None:
        self._device = device
        self._pools = pools
        self._workspaces = workspaces
        self._stream = torch.cuda.Stream(device)
        self._native_pool: Any = None

    def capture(self, function: Callable[[], Any], warmup: int, graphs_slot: int | None) -> TorchGraph:
        """Warms up, then captures into the zone, or into a pool of PyTorch's own if there is no zone."""
        self._warm_up(function, warmup)
        kept = graphs_slot is not None
        graph = torch.cuda.CUDAGraph(keep_graph=True) if kept else torch.cuda.CUDAGraph()
        pool = self.pool(graphs_slot)
        # thread_local: background restore threads may call the driver while this one captures.
        with (
            self.around(graphs_slot),
            torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"),
        ):
            outputs = function()
        # What PyTorch wrote before the capture (seed and offset) must not come after a first replay.
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return TorchGraph(graph, outputs, self._device, kept)

    def pool(self, graphs_slot: int | None) -> Any:
        """The id of the zone's pool, or of one of PyTorch's own."""
        if graphs_slot is not None:
            return self._pools().graphs(graphs_slot)
        self._native_pool = self._native_pool or torch.cuda.graph_pool_handle()
        return self._native_pool

    @contextmanager
    def around(self, graphs_slot: int | None) -> Iterator[None]:
        """Around a capture that allocates from that pool."""
        # A native capture is PyTorch's business alone: graphs that others captured may use the workspaces of today.
        with self._workspaces.private() if graphs_slot is not None else nullcontext(), announced():
            try:
                yield
            except BaseException:
                # A capture that failed may have left its routing behind, and the pool would be refused ever after.
                with suppress(RuntimeError):
                    torch._C._cuda_endAllocateToPool(self._device, self.pool(graphs_slot))
                raise

    def _warm_up(self, function: Callable[[], Any], times: int) -> None:
        if times <= 0:
            return
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(times):
                function()
        current.wait_stream(self._stream)
        torch.cuda.synchronize(self._device)
