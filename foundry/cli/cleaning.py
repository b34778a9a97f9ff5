"""`foundry gc`: removes what SAVEs that died left behind."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_LEFTOVER = re.compile(r"^(?P<archive>.+)\.(?:tmp|old)-\d+-[^/]+$")


@dataclass(frozen=True)
class Leftover:
    """A directory of a dead SAVE. `restored`: the archive itself, put back in place."""

    path: str
    nbytes: int
    restored: bool


def archives_with_leftovers(folder: str) -> list[str]:
    """Archives in `folder` (or the archive `folder` itself) beside which something was left. Raises OSError."""
    folder = os.path.normpath(folder)
    found = set()
    # Beside `folder`, if it is an archive (or was one before its SAVE died); inside it, whatever it is.
    parent, name = os.path.split(os.path.abspath(folder))
    for entry in _entries(parent):
        match = _LEFTOVER.match(entry)
        if match and match["archive"] == name:
            found.add(folder)
    for entry in _entries(folder):
        match = _LEFTOVER.match(entry)
        if match:
            found.add(os.path.join(folder, match["archive"]))
    return sorted(found)


def _entries(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def clean(folder: str, dry_run: bool) -> list[Leftover]:
    """Removes (or only lists) leftovers whose process is gone. Raises OSError and FoundryError."""
    from foundry import _core

    act = _core.list_stale if dry_run else _core.remove_stale
    return [
        Leftover(stale.path, stale.bytes, stale.restorable)
        for archive in archives_with_leftovers(folder)
        for stale in act(archive)
    ]
