"""The only package of Foundry that touches PyTorch (2.8 and later)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foundry.runtime import Runtime

__all__ = ["runtime"]

_runtime: Runtime | None = None


def runtime() -> Runtime:
    """The process's one runtime for PyTorch. Raises ImportError without PyTorch."""
    global _runtime
    if _runtime is None:
        from foundry.torch.torch_runtime import TorchRuntime

        _runtime = TorchRuntime()
    return _runtime
