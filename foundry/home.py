"""The process in which a session does its work: its end, and its forks."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from foundry.errors import wrong_state


class Stoppable(Protocol):
    """Something with threads."""

    def stop(self) -> None:
        """Ends them; called when the interpreter exits."""


class Home:
    """Remembers the process. In a fork of it nothing of the session can be used: CUDA does not work there, and locks and
    threads are those of the parent."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def left(self) -> bool:
        """Whether this is another process."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raises FoundryError in a fork."""
        if self.left:
            raise wrong_state(
                f"this process is a fork of process {self._pid}, to which the session belongs; CUDA and what Foundry "
                "restored do not work here: start processes with the method 'spawn', or before the session begins"
            )


_running: weakref.WeakSet[Stoppable] = weakref.WeakSet()


def stop_at_exit(what: Stoppable) -> None:
    """Threads that use the driver must have ended before the driver's own exit handlers run."""
    _running.add(what)


def _stop_all() -> None:
    for one in list(_running):
        one.stop()


atexit.register(_stop_all)
