"""Foundry: captured CUDA graphs that survive the process.

Importing this package costs nothing: names are resolved on first use, and torch is never imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foundry._core import VERSION as __version__
    from foundry._core import FoundryError
    from foundry.api import Session, session
    from foundry.report import Report

__all__ = ["FoundryError", "Report", "Session", "__version__", "session"]

_HOMES = {
    "FoundryError": ("foundry._core", "FoundryError"),
    "Report": ("foundry.report", "Report"),
    "Session": ("foundry.api", "Session"),
    "__version__": ("foundry._core", "VERSION"),
    "session": ("foundry.api", "session"),
}


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'foundry' has no attribute {name!r}") from None
    from importlib import import_module

    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
