"""Graphs captured as if Foundry were absent: mode "off", and everything that falls back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from foundry.graphs import Graph

if TYPE_CHECKING:
    from foundry.anchors import Anchor
    from foundry.report import Report
    from foundry.runtime import Runtime


class Backend(Protocol):
    """What a session does in one of its modes."""

    def phase(self, name: str, kind: str) -> AbstractContextManager[None]:
        """Makes the zone of that name current for a block."""

    def registered(self, anchor: Anchor) -> None:
        """Checks an anchor tensor when it is registered."""

    def graph(self, name: str, function: Callable[[], Any], warmup: int) -> Graph:
        """The graph of that name."""

    def finish(self) -> None:
        """The session's block ended well."""

    def wait(self) -> None:
        """Every graph can be replayed afterwards."""

    def abandon(self) -> None:
        """The session's block ended with an exception."""


class NativeBackend:
    """Captures natively. `runtime` is asked for only when the first graph is captured."""

    def __init__(self, runtime: Callable[[], Runtime], report: Report) -> None:
        self._runtime = runtime
        self._report = report

    def phase(self, name: str, kind: str) -> AbstractContextManager[None]:
        """Nothing to do."""
        return nullcontext()

    def registered(self, anchor: Anchor) -> None:
        """Nothing to do."""

    def graph(self, name: str, function: Callable[[], Any], warmup: int) -> Graph:
        """Captures now."""
        graph = Graph(name)
        graph.become_native(capture(self._runtime(), function, warmup))
        self._report.native.append(name)
        return graph

    def finish(self) -> None:
        """Nothing to do."""

    def wait(self) -> None:
        """Nothing to do."""

    def abandon(self) -> None:
        """Nothing to do."""


def capture(runtime: Runtime, function: Callable[[], Any], warmup: int) -> Any:
    """A native graph in the framework's own pool, ready to replay."""
    native = runtime.capture(function, warmup, None)
    native.instantiate()
    return native
