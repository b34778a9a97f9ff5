"""Names of functions for the frames of a journal, from the files of code that this machine has."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from foundry import _core

if TYPE_CHECKING:
    from foundry._core import JournalFrame

_SYSTEM = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
           "/usr/local/lib", "/usr/local/cuda/lib64")  # fmt: skip
# Folders below an entry of sys.path: site-packages/nvidia/cublas/lib.
_DEPTH = 4


class Resolver:
    """Finds files by base name and build-id. A file of another build is never used: its names would be wrong.

    `folders` are searched first, then what this process has mapped, the system's folders, and Python's packages.
    """

    def __init__(self, folders: Sequence[str] = ()) -> None:
        self._folders = list(folders)
        self._symbols: dict[tuple[str, str], _core.Symbols | None] = {}
        self._packages: dict[str, list[str]] | None = None

    def name(self, frame: JournalFrame) -> str | None:
        """The function around the frame; None if the file is not here or has no name for it."""
        if not frame.build_id:
            return None
        key = frame.module, frame.build_id
        if key not in self._symbols:
            self._symbols[key] = self._find(*key)
        symbols = self._symbols[key]
        return symbols.at(frame.offset) or None if symbols is not None else None

    def _find(self, name: str, build_id: str) -> _core.Symbols | None:
        seen: set[str] = set()
        for path in self._candidates(name):
            real = os.path.realpath(path)
            if real in seen or not os.path.isfile(real):
                continue
            seen.add(real)
            try:
                if _core.read_build_id(real) == build_id:
                    return _core.Symbols(real)
            except _core.FoundryError:
                continue  # no file of code, or damaged: another one may fit
        return None

    def _candidates(self, name: str) -> Iterator[str]:
        for folder in self._folders:
            yield os.path.join(folder, name)
        yield from _mapped(name)
        for folder in (*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")), *_SYSTEM):
            yield os.path.join(folder, name)
        if self._packages is None:
            self._packages = _files_below([*sys.path, os.path.join(sys.base_prefix, "lib")])
        yield from self._packages.get(name, [])


def _mapped(name: str) -> Iterator[str]:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            parts = line.rstrip("\n").split(maxsplit=5)
            if len(parts) == 6 and os.path.basename(parts[5]) == name:
                yield parts[5]


def _files_below(folders: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for top in dict.fromkeys(filter(os.path.isdir, folders)):
        for folder, below, files in os.walk(top):
            if os.path.relpath(folder, top).count(os.sep) + 1 >= _DEPTH:
                below.clear()
            for file in files:
                if ".so" in file:
                    found.setdefault(file, []).append(os.path.join(folder, file))
    return found
