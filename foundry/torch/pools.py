"""Memory pools whose segments come from zones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from foundry import _core
from foundry.errors import wrong_state

if TYPE_CHECKING:
    from foundry.torch.workspaces import Workspaces


class ZonePools:
    """Pluggable allocators and pools by zone slot.

    Allocators live until the process ends: PyTorch calls them whenever a segment of theirs goes. Every stretch of a
    phase has a pool of its own. When it ends the pool object goes too, which gives wholly free segments back; tensors
    outlive it, and half-free segments are not reused by later phases.
    """

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._allocators: dict[int, Any] = {}
        self._graphs: dict[int, Any] = {}
        self._active: tuple[int, int, Any] | None = None
        self._paused = False

    def _new_pool(self, slot: int) -> Any:
        allocator = self._allocators.get(slot)
        if allocator is None:
            symbols = _core.allocator_symbols(slot)
            allocator = torch.cuda.memory.CUDAPluggableAllocator(symbols.library, symbols.malloc, symbols.free)
            self._allocators[slot] = allocator
        return torch.cuda.MemPool(allocator.allocator())

    def begin(self, device: int, slot: int) -> None:
        """Routes the allocations of all threads and streams to the zone."""
        if self._active is not None:
            raise wrong_state(f"zone {self._active[1]} is current: it must end before zone {slot} begins")
        pool = self._new_pool(slot)
        # Not torch.cuda.use_mem_pool: that is for the calling thread alone.
        torch._C._cuda_beginAllocateToPool(device, pool.id)
        self._active = device, slot, pool

    def pause(self, slot: int) -> None:
        """Ends the routing for a while; the pool keeps its segments."""
        if self._active is None or self._active[1] != slot or self._paused:
            raise wrong_state(f"zone {slot} is not current: it cannot pause")
        torch._C._cuda_endAllocateToPool(self._active[0], self._active[2].id)
        self._paused = True

    def resume(self, slot: int) -> None:
        """Goes on with the routing."""
        if self._active is None or self._active[1] != slot or not self._paused:
            raise wrong_state(f"zone {slot} is not paused: it cannot go on")
        device, _, pool = self._active
        torch._C._cuda_beginAllocateToPool(device, pool.id)
        # Every beginning counts as a user, and `end` takes one away.
        torch._C._cuda_releasePool(device, pool.id)
        self._paused = False

    def end(self, slot: int) -> None:
        """Ends the routing and gives wholly free segments back."""
        if self._active is None or self._active[1] != slot or self._paused:
            raise wrong_state(f"zone {slot} is not current: it cannot end")
        device, _, pool = self._active
        self._active = None
        # Workspaces are kept per handle and stream: made in this phase, they would hold its memory for ever. Where a
        # graph may use them they do.
        self._workspaces.clear()
        torch._C._cuda_endAllocateToPool(device, pool.id)
        torch._C._cuda_releasePool(device, pool.id)

    def graphs(self, slot: int) -> Any:
        """The id of the pool for captures, which all graphs share and which stays."""
        if slot not in self._graphs:
            self._graphs[slot] = self._new_pool(slot)
        return self._graphs[slot].id
