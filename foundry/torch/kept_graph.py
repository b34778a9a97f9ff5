"""A torch.cuda.CUDAGraph whose CUgraph can be read when its capture has ended, for programs that capture themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class KeptGraph(torch.cuda.CUDAGraph):  # type: ignore[misc]  # PyTorch is not there when types are checked
    """Takes the place of `torch.cuda.CUDAGraph()`.

    `captured` gets the graph at the end of its capture, before it is instantiated: `lambda graph: s.adopt(name, graph,
    outputs)`. It may be set as an attribute, too. What it raises ends the capture. Without it the program calls `adopt`
    itself, at any time before the graph is reset.
    """

    captured: Callable[[KeptGraph], Any] | None

    # PyTorch decides in __new__, pybind11 takes what __init__ says: both must know.
    def __new__(cls, captured: Callable[[KeptGraph], Any] | None = None, keep_graph: bool = True) -> KeptGraph:
        made: KeptGraph = super().__new__(cls, keep_graph=True)
        return made

    def __init__(self, captured: Callable[[KeptGraph], Any] | None = None, keep_graph: bool = True) -> None:
        super().__init__(keep_graph=True)
        self.captured = captured
        self._instantiated = False

    def capture_end(self) -> None:
        """Ends the capture, hands the graph on, makes it replayable."""
        super().capture_end()
        if self.captured is not None:
            self.captured(self)
        self.instantiate()

    def instantiate(self) -> None:
        """Makes the graph replayable. PyTorch would do it anew at each call; here only the first one counts."""
        if not self._instantiated:
            super().instantiate()
            self._instantiated = True

    def reset(self) -> None:
        """Forgets the capture."""
        super().reset()
        self._instantiated = False
