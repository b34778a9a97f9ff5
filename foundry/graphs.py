"""The handle of one graph: captured here, restored from an archive, or not decided yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from foundry.runtime import NativeGraph

Source = Literal["pending", "native", "restored"]


class Graph:
    """A graph that can be replayed. Made by `Session.graph`.

    On LOAD a handle is `pending` until its first use, which finishes the session if that has not happened yet and
    waits for this graph alone.
    """

    __slots__ = ("_decide", "_launch", "_make_outputs", "_native", "_outputs", "name", "source")

    def __init__(self, name: str, decide: Callable[[Graph], None] | None = None) -> None:
        self.name = name
        self.source: Source = "pending"
        self._decide = decide
        self._launch: Callable[[], None] | None = None
        self._make_outputs: Callable[[], Any] | None = None
        self._native: NativeGraph | None = None
        self._outputs: Any = None

    def replay(self) -> None:
        """Runs the graph on the current stream. Raises FoundryError if the driver refuses."""
        launch = self._launch
        if launch is None:
            launch = self._ready()
        launch()

    @property
    def outputs(self) -> Any:
        """What the captured function returned; tensors hold the values of the latest replay."""
        self._ready()
        if self._make_outputs is not None:
            self._outputs = self._make_outputs()
            self._make_outputs = None
        return self._outputs

    def _ready(self) -> Callable[[], None]:
        if self._launch is None and self._decide is not None:
            self._decide(self)
        assert self._launch is not None  # _decide raised, or chose one of the two below
        return self._launch

    def become_native(self, native: NativeGraph, outputs: Any = None) -> None:
        """The graph was captured in this process; `outputs` if `native` does not know them."""
        self._native = native
        self._outputs, self._make_outputs = native.outputs if outputs is None else outputs, None
        self.source, self._launch, self._decide = "native", native.replay, None

    def become_restored(self, launch: Callable[[], None], outputs: Callable[[], Any]) -> None:
        """The graph comes from an archive; `outputs` makes its outputs on first use."""
        self._make_outputs = outputs
        self.source, self._launch, self._decide = "restored", launch, None

    def __repr__(self) -> str:
        return f"<foundry graph {self.name!r}, {self.source}>"
