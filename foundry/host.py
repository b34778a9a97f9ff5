"""Host memory that graphs copy from and to: where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foundry.runtime import Runtime


def span(runtime: Runtime, memory: Any) -> tuple[int, int]:
    """Address and bytes of a tensor of the framework on the host, or of whatever has the buffer protocol.

    Raises FoundryError(kind="invalid") for what is neither, or does not lie in one piece.
    """
    from foundry import _core

    if runtime.is_tensor(memory):
        return runtime.host_span(memory)
    return _core.buffer_span(memory)
