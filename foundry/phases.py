"""Which zone takes the framework's allocations: one stack for all threads of the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foundry.runtime import Runtime


class _Entry:
    """One `with` block. `slot` None: allocations go where they go without Foundry."""

    def __init__(self, slot: int | None) -> None:
        self.slot = slot


class PhaseStack:
    """The open phases, innermost last. At most one zone is current: frameworks take the oldest matching pool, so the
    outer zone is ended before the inner one begins."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.RLock()
        self._entries: list[_Entry] = []
        self._suspended = 0
        self._current: int | None = None
        self._paused: int | None = None

    @property
    def current(self) -> int | None:
        """Slot of the zone that takes allocations now."""
        return self._current

    @contextmanager
    def phase(self, slot: int | None) -> Iterator[None]:
        """Makes the zone current for a block. Blocks of several threads may overlap in any way: the youngest counts."""
        entry = _Entry(slot)
        with self._lock:
            self._entries.append(entry)
            try:
                self._settle()
            except BaseException:
                self._entries.remove(entry)
                raise
        try:
            yield
        finally:
            with self._lock:
                if entry in self._entries:
                    self._entries.remove(entry)
                    self._settle()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """No zone is current during a block (a capture allocates from its own)."""
        with self._lock:
            self._suspended += 1
            self._settle()
        try:
            yield
        finally:
            with self._lock:
                self._suspended -= 1
                self._settle()

    def end_all(self) -> None:
        """Ends every open phase; their blocks may go on without effect."""
        with self._lock:
            self._entries.clear()
            self._settle()

    def _settle(self) -> None:
        wanted = self._entries[-1].slot if self._entries else None
        if self._suspended:
            # The stretch goes on afterwards with the memory that it has: ending and beginning one for every capture
            # would give all of it back and take it again (0.25 s each time in an engine on an H200).
            if self._current is not None:
                self._paused, self._current = self._current, None
                self._runtime.pause_zone(self._paused)
            return
        if self._paused is not None:
            self._current, self._paused = self._paused, None
            self._runtime.resume_zone(self._current)
        if wanted == self._current:
            return
        if self._current is not None:
            ended, self._current = self._current, None
            self._runtime.end_zone(ended)
        if wanted is not None:
            self._runtime.begin_zone(wanted)
            self._current = wanted
