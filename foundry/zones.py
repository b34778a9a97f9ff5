"""In which zone a tensor of the framework lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foundry import _core

if TYPE_CHECKING:
    from foundry.runtime import Runtime


def zone_of(runtime: Runtime, tensor: Any) -> int | None:
    """The slot of its zone; None for memory elsewhere, for no memory, and for what is no plain device tensor."""
    try:
        described = runtime.describe(tensor)
    except _core.FoundryError:
        return None
    return slot_of(described)


def slot_of(described: _core.Tensor) -> int | None:
    """The same for what a runtime has described."""
    return _core.in_zone(described.address) if described.nbytes else None
