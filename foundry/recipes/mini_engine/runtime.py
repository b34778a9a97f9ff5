"""foundry.runtime.Runtime for the mini engine: an engine with an allocator of its own, without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from foundry.capturing import announced
from foundry.errors import invalid, unsupported, wrong_state
from foundry.recipes.mini_engine.arrays import DeviceArray, Storage
from foundry.recipes.mini_engine.driver import EVENT_DISABLE_TIMING
from foundry.recipes.mini_engine.graphs import CapturedGraph, capture

if TYPE_CHECKING:
    from foundry._core import Event, Tensor
    from foundry.recipes.mini_engine.allocator import PoolId
    from foundry.recipes.mini_engine.device import Device


class ZoneSegments:
    """Segments of the caching allocator from a zone."""

    def __init__(self, slot: int) -> None:
        self._slot = slot

    def malloc(self, nbytes: int, stream: int) -> int:
        """An address in the zone, 0 if there is no memory."""
        from foundry import _core

        try:
            return _core.zone_alloc(self._slot, nbytes, 0, stream)
        except _core.FoundryError as problem:
            if problem.kind != "out_of_memory":
                raise
            return 0

    def free(self, address: int, nbytes: int, stream: int) -> None:
        """Gives the segment back to the zone."""
        from foundry import _core

        _core.zone_free(address, stream)


class MiniRuntime:
    """The services of one device."""

    name = "mini_engine"

    def __init__(self, device: Device) -> None:
        self._device = device
        self._active: tuple[int, int] | None = None
        self._graph_pools: dict[int | None, PoolId] = {}
        self._events: list[Event] = []
        self._capture_stream = 0

    def device(self) -> int:
        """The engine's device; its context is current on this thread afterwards."""
        self._device.use_on_this_thread()
        return self._device.ordinal

    def fingerprint(self) -> dict[str, str | int]:
        """The engine has no version and no settings of its own."""
        return {
            "framework_version": "1",
            "cuda_version": self._device.driver.version(),
            "allocator_settings": "",
        }

    def begin_zone(self, slot: int) -> None:
        """Allocations of all threads and streams come from the zone, in a pool of this stretch's own."""
        if self._active is not None:
            raise wrong_state(f"zone {self._active[0]} is current: it must end before zone {slot} begins")
        pool = self._device.allocator.create_pool(ZoneSegments(slot))
        self._device.allocator.begin_pool(pool)
        self._active = slot, pool

    def pause_zone(self, slot: int) -> None:
        """The pool keeps its segments."""
        if self._active is None or self._active[0] != slot:
            raise wrong_state(f"zone {slot} is not current: it cannot pause")
        self._device.allocator.end_pool(self._active[1])

    def resume_zone(self, slot: int) -> None:
        """With the pool of before."""
        if self._active is None or self._active[0] != slot:
            raise wrong_state(f"zone {slot} is not paused: it cannot go on")
        self._device.allocator.begin_pool(self._active[1])

    def end_zone(self, slot: int) -> None:
        """Ends the routing and gives wholly free segments back."""
        if self._active is None or self._active[0] != slot:
            raise wrong_state(f"zone {slot} is not current: it cannot end")
        pool, self._active = self._active[1], None
        self._device.allocator.end_pool(pool)
        self._device.allocator.release_pool(pool)
        self._device.allocator.empty_cache(pool)

    def is_tensor(self, value: Any) -> bool:
        """Whether it is an array of the engine."""
        return isinstance(value, DeviceArray)

    def host_span(self, tensor: Any) -> tuple[int, int]:
        """Arrays are on the device, all of them."""
        raise invalid(f"the array at {tensor.address:#x} is device memory: register it with register()")

    def describe(self, tensor: Any) -> Tensor:
        """Address, shape and storage."""
        from foundry import _core

        return _core.Tensor(
            name="",
            dtype=tensor.dtype,
            item_bytes=tensor.item_bytes,
            address=tensor.address,
            sizes=list(tensor.shape),
            strides=list(tensor.strides),
            storage_address=tensor.storage.address,
            storage_bytes=tensor.storage.nbytes,
        )

    def named_tensors(self, module: Any) -> Iterable[tuple[str, Any, bool]]:
        """A module is a mapping of names to constant arrays here."""
        if not isinstance(module, Mapping):
            raise unsupported(f"a {type(module).__name__} is no mapping of names to arrays")
        return [(name, array, True) for name, array in module.items()]

    def adopt(self, tensor: Tensor, owner: object) -> DeviceArray:
        """An array whose storage is the recorded one."""
        storage = Storage(self._device.driver, tensor.storage_address, tensor.storage_bytes, None, owner)
        return self._view(tensor, storage)

    def alias(self, tensor: Tensor, base: Any) -> DeviceArray:
        """An array at its recorded address in the storage of `base`."""
        return self._view(tensor, base.storage)

    def _view(self, tensor: Tensor, storage: Storage) -> DeviceArray:
        offset = (tensor.address - storage.address) // tensor.item_bytes if tensor.nbytes else 0
        return DeviceArray(storage, tensor.sizes, tensor.dtype, tensor.strides, offset)

    def reseat(self, aliases: list[Any], old_address: int, new_address: int, nbytes: int, owner: object) -> None:
        """Moves the arrays' storage; its old memory stays allocated for good."""
        for storage in {id(array.storage): array.storage for array in aliases}.values():
            if storage.address != old_address:
                raise unsupported(f"an array to re-seat from {old_address:#x} is at {storage.address:#x} meanwhile")
            storage.move(new_address, owner)

    def aliases(self, storages: list[list[Any]]) -> list[tuple[list[Any], int]]:
        """Arrays share a storage object, which moves with all of them."""
        return [(arrays, 0) for arrays in storages]

    def event_handle(self, event: Any) -> tuple[int, int]:
        """Events are handles here."""
        return event, EVENT_DISABLE_TIMING

    def event_over(self, event: Event) -> int:
        """The handle; the runtime keeps the event, since handles keep nothing."""
        self._events.append(event)
        return event.handle

    def blocks(self) -> list[tuple[int, int, bool]]:
        """Blocks of segments that lie in zones."""
        from foundry import _core

        return [
            (block.address, block.nbytes, block.active)
            for segment in self._device.allocator.snapshot()
            if _core.in_zone(segment.address) is not None
            for block in segment.blocks
        ]

    def capture(self, function: Callable[[], Any], warmup: int, graphs_slot: int | None) -> CapturedGraph:
        """Warms up on the current stream, then captures on a side stream."""
        for _ in range(warmup):
            function()
        if self._capture_stream == 0:
            self._capture_stream = self._device.driver.stream()
        with self.capturing(graphs_slot):
            return capture(self._device, function, self.graph_pool(graphs_slot), self._capture_stream)

    def graph_pool(self, graphs_slot: int | None) -> PoolId:
        """Shared by all graphs of the zone, or by all native ones."""
        pool = self._graph_pools.get(graphs_slot)
        if pool is None:
            source = None if graphs_slot is None else ZoneSegments(graphs_slot)
            pool = self._graph_pools[graphs_slot] = self._device.allocator.create_pool(source)
        return pool

    def capturing(self, graphs_slot: int | None) -> AbstractContextManager[None]:
        """The engine has no workspaces of libraries."""
        return announced()

    def captured(self, graph: Any) -> CapturedGraph:
        """What `graphs.capture` returned."""
        if not isinstance(graph, CapturedGraph):
            raise unsupported(f"a {type(graph).__name__} is no graph of the mini engine")
        return graph

    def draw(self, increment: int) -> tuple[int, int]:
        """Seed and offset of the generator; then advances it."""
        generator = self._device.generator
        seed, offset = generator.seed, generator.offset
        generator.offset += increment
        return seed, offset

    def set_generator(self, seed: int, offset: int) -> None:
        """The generator's state."""
        self._device.generator.seed, self._device.generator.offset = seed, offset

    def current_stream(self) -> int:
        """The current stream of this thread."""
        return self._device.stream

    def synchronize(self) -> None:
        """Waits for all work of the context."""
        self._device.synchronize()
