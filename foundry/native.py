"""Graphs captured as if Foundry were absent: mode "off", and everything that falls back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from foundry.capturing import announced
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

    def registered_host(self, name: str, memory: Any) -> None:
        """Host memory that graphs use; raises FoundryError where they cannot."""

    def in_phase(self, tensor: Any) -> bool:
        """Whether a tensor lies in a rebuilt zone."""

    def exporting(self, name: str, tensor: Any) -> None:
        """Checks a tensor when it is exported."""

    def exported(self, name: str) -> Any:
        """The tensor that SAVE exported under that name, None if this backend restores none."""

    def restores_exports(self) -> bool:
        """Whether exports come from an archive."""

    def graph(self, name: str, function: Callable[[], Any], warmup: int) -> Graph:
        """The graph of that name."""

    def graph_pool(self) -> Any:
        """The framework's memory pool for captures that the program makes itself."""

    def capturing(self) -> AbstractContextManager[None]:
        """Around such a capture."""

    def adopt(self, name: str, graph: Any, outputs: Any) -> Graph:
        """The graph that the program captured, as the framework's object."""

    def restored(self, name: str) -> Graph | None:
        """The graph of that name if it comes from an archive."""

    def event(self, name: str) -> Any:
        """The event of restored graphs under that name; None if this backend restores none."""

    def attached(self, name: str) -> str | None:
        """The program's file of that name in the archive; None if this backend reads none."""

    def captured(self) -> None:
        """The program's captures are over; what follows in the block are steps as it will run them."""

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

    def registered_host(self, name: str, memory: Any) -> None:
        """Nothing to do."""

    def in_phase(self, tensor: Any) -> bool:
        """There are no zones."""
        return False

    def exporting(self, name: str, tensor: Any) -> None:
        """Nothing to do."""

    def exported(self, name: str) -> Any:
        """There is no archive."""
        return None

    def restores_exports(self) -> bool:
        """There is no archive."""
        return False

    def graph(self, name: str, function: Callable[[], Any], warmup: int) -> Graph:
        """Captures now."""
        graph = Graph(name)
        graph.become_native(capture(self._runtime(), function, warmup))
        self._report.native.append(name)
        return graph

    def graph_pool(self) -> Any:
        """The framework's own."""
        return self._runtime().graph_pool(None)

    def capturing(self) -> AbstractContextManager[None]:
        """Zones of earlier sessions may be there."""
        return announced()

    def adopt(self, name: str, graph: Any, outputs: Any) -> Graph:
        """The program has captured it; it replays it, too."""
        adopted = Graph(name)
        adopted.become_native(self._runtime().captured(graph), outputs)
        self._report.native.append(name)
        return adopted

    def restored(self, name: str) -> Graph | None:
        """There is no archive."""
        return None

    def event(self, name: str) -> Any:
        """There is no archive."""
        return None

    def attached(self, name: str) -> str | None:
        """There is no archive."""
        return None

    def captured(self) -> None:
        """Nothing to do."""

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
