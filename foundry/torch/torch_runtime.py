"""foundry.runtime.Runtime for PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from foundry.errors import unsupported
from foundry.torch import settings
from foundry.torch.capture import Capturer, TorchGraph
from foundry.torch.workspaces import Workspaces

if TYPE_CHECKING:
    from foundry._core import Event, Tensor
    from foundry.torch.pools import ZonePools


class TorchRuntime:
    """PyTorch on its current CUDA device. One per process, since pools live as long as the process."""

    name = "torch"

    def __init__(self) -> None:
        self._device: int | None = None
        self._workspaces = Workspaces()
        self._zone_pools: ZonePools | None = None
        self._capturers: dict[int, Capturer] = {}
        # Storages whose tensors were re-seated: their memory holds other anchors now.
        self._retired: list[torch.UntypedStorage] = []

    def device(self) -> int:
        """PyTorch's current device; its context is current afterwards."""
        problem = settings.problem()
        if problem is not None:
            raise unsupported(problem)
        self._device = None  # PyTorch's current device may be another one than in an earlier session
        return self._index()

    def _index(self) -> int:
        if self._device is None:
            torch.cuda.init()
            self._device = torch.cuda.current_device()
            torch.cuda.synchronize(self._device)
        return self._device

    def fingerprint(self) -> dict[str, str | int]:
        """PyTorch's version and what moves its allocations."""
        return settings.fingerprint()

    def _pools(self) -> ZonePools:
        if self._zone_pools is None:
            from foundry.torch.pools import ZonePools

            self._zone_pools = ZonePools(self._workspaces)
        return self._zone_pools

    def begin_zone(self, slot: int) -> None:
        """Allocations of all threads come from the zone."""
        self._pools().begin(self._index(), slot)

    def pause_zone(self, slot: int) -> None:
        """The zone keeps its pool."""
        self._pools().pause(slot)

    def resume_zone(self, slot: int) -> None:
        """With the pool of before."""
        self._pools().resume(slot)

    def end_zone(self, slot: int) -> None:
        """The matching end; free segments go back."""
        self._pools().end(slot)

    def is_tensor(self, value: Any) -> bool:
        """Whether it is any torch.Tensor."""
        return isinstance(value, torch.Tensor)

    def host_span(self, tensor: Any) -> tuple[int, int]:
        """See tensors.host_span."""
        from foundry.torch import tensors

        return tensors.host_span(tensor)

    def describe(self, tensor: Any) -> Tensor:
        """See tensors.describe."""
        from foundry.torch import tensors

        return tensors.describe(tensor)

    def named_tensors(self, module: Any) -> Iterable[tuple[str, Any, bool]]:
        """See tensors.named_tensors."""
        from foundry.torch import tensors

        return tensors.named_tensors(module)

    def adopt(self, tensor: Tensor, owner: object) -> Any:
        """See tensors.adopt."""
        from foundry.torch import tensors

        return tensors.adopt(tensor, self._index(), owner)

    def alias(self, tensor: Tensor, base: Any) -> Any:
        """See tensors.alias."""
        from foundry.torch import tensors

        return tensors.alias(tensor, base)

    def reseat(self, aliases: list[Any], old_address: int, new_address: int, nbytes: int, owner: object) -> None:
        """Points parameters, buffers and their registered aliases to the copy; the old storage is kept for ever."""
        from foundry.torch import tensors

        storage = tensors.over_memory(new_address, nbytes, self._index(), owner)
        # Tied weights are one tensor under several names.
        distinct = list({id(tensor): tensor for tensor in aliases}.values())
        for tensor in distinct:
            found = tensor.untyped_storage().data_ptr()
            if found != old_address:
                raise unsupported(f"a tensor to re-seat from {old_address:#x} is at {found:#x} meanwhile")
        for tensor in distinct:
            self._retired.append(tensor.untyped_storage())
            tensors.point_to(tensor, storage)

    def aliases(self, storages: list[list[Any]]) -> list[tuple[list[Any], int]]:
        """See aliases.find."""
        from foundry.torch import aliases

        return aliases.find(storages)

    def event_handle(self, event: Any) -> tuple[int, int]:
        """See events.handle."""
        from foundry.torch import events

        return events.handle(event)

    def event_over(self, event: Event) -> Any:
        """See events.RestoredEvent."""
        from foundry.torch import events

        return events.RestoredEvent(event, self._index())

    def blocks(self) -> list[tuple[int, int, bool]]:
        """Blocks of segments that lie in zones."""
        from foundry import _core

        found = []
        for segment in torch.cuda.memory_snapshot():
            if _core.in_zone(segment["address"]) is None:
                continue
            address = segment["address"]
            for block in segment["blocks"]:
                found.append((address, block["size"], block["state"] != "inactive"))
                address += block["size"]
        return found

    def capture(self, function: Callable[[], Any], warmup: int, graphs_slot: int | None) -> TorchGraph:
        """See capture.Capturer."""
        return self._capturer().capture(function, warmup, graphs_slot)

    def graph_pool(self, graphs_slot: int | None) -> Any:
        """See capture.Capturer."""
        return self._capturer().pool(graphs_slot)

    def capturing(self, graphs_slot: int | None) -> AbstractContextManager[None]:
        """See capture.Capturer."""
        return self._capturer().around(graphs_slot)

    def captured(self, graph: Any) -> TorchGraph:
        """A torch.cuda.CUDAGraph that keeps its CUgraph."""
        return TorchGraph(graph, None, self._index(), True)

    def _capturer(self) -> Capturer:
        device = self._index()
        if device not in self._capturers:
            self._capturers[device] = Capturer(device, self._pools, self._workspaces)
        return self._capturers[device]

    def draw(self, increment: int) -> tuple[int, int]:
        """Seed and offset of the device's default generator; then advances it."""
        generator = torch.cuda.default_generators[self._index()]
        seed, offset = int(generator.initial_seed()), int(generator.get_offset())
        generator.set_offset(offset + increment)
        return seed, offset

    def set_generator(self, seed: int, offset: int) -> None:
        """The device's default generator."""
        generator = torch.cuda.default_generators[self._index()]
        generator.manual_seed(seed)
        generator.set_offset(offset)

    def current_stream(self) -> int:
        """The current stream of the device."""
        return int(torch._C._cuda_getCurrentRawStream(self._index()))

    def synchronize(self) -> None:
        """Waits for all work of the device."""
        torch.cuda.synchronize(self._index())
