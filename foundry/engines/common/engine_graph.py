"""The class that stands in for torch.cuda.CUDAGraph while an engine captures on SAVE."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from foundry.torch.kept_graph import KeptGraph

if TYPE_CHECKING:
    from foundry.api import Session


def engine_graph(session: Session) -> type[torch.cuda.CUDAGraph]:
    """A class whose captures go into the session's zone for graphs, whatever pool the engine names."""

    class EngineGraph(KeptGraph):
        _around: AbstractContextManager[None] | None = None

        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
            self._around = session.capturing()
            self._around.__enter__()
            try:
                super().capture_begin(session.graph_pool(), capture_error_mode)
            except BaseException as problem:
                self._leave(problem)
                raise

        def capture_end(self) -> None:
            try:
                super().capture_end()
            except BaseException as problem:
                self._leave(problem)  # which then ends what PyTorch has left behind
                raise
            self._leave(None)

        def _leave(self, problem: BaseException | None) -> None:
            around, self._around = self._around, None
            if around is not None:
                around.__exit__(type(problem) if problem else None, problem, None)

    return EngineGraph
