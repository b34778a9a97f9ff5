"""How Python code raises FoundryError, whose class lives in the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foundry._core import FoundryError

# Kinds of error for files that are missing or not what they should be.
DAMAGED = ("io", "corrupt")


def error(kind: str, sentence: str) -> FoundryError:
    """A FoundryError to raise; `kind` is one of those in _core.pyi, `sentence` says what, where and what to do."""
    from foundry._core import FoundryError

    made = FoundryError(sentence)
    made.kind = kind
    made.code = 0
    return made


def invalid(sentence: str) -> FoundryError:
    """The caller asked for something that cannot be."""
    return error("invalid", sentence)


def corrupt(sentence: str) -> FoundryError:
    """A file of the archive is not what its format says."""
    return error("corrupt", sentence)


def mismatch(sentence: str) -> FoundryError:
    """The archive is sound but does not fit this process."""
    return error("mismatch", sentence)


def unsupported(sentence: str) -> FoundryError:
    """Foundry cannot do this (yet)."""
    return error("unsupported", sentence)


def wrong_state(sentence: str) -> FoundryError:
    """A call at the wrong time."""
    return error("state", sentence)
