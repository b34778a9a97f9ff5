"""As much of PyTorch as vLLM's captures touch, on the framework of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import fake_core
from fake_framework import FakeGraph, FakeTensor, Framework


class TorchLike(Framework):
    """The framework of one process, which also is the session's runtime."""

    def __init__(self) -> None:
        super().__init__()
        self.captures = 0
        self.free_bytes = 1 << 30

    def captured(self, graph: Any) -> FakeGraph:
        if not graph.kept:
            raise fake_core.fail("unsupported", "PyTorch has no CUgraph of it")
        return FakeGraph(self, graph.program, None, 0)


framework = TorchLike()
Tensor = FakeTensor


class CUDAGraph:
    """torch.cuda.CUDAGraph: __new__ and __init__ must agree on keep_graph."""

    def __new__(cls, keep_graph: bool = False) -> CUDAGraph:
        made = super().__new__(cls)
        made.kept = keep_graph
        return made

    def __init__(self, keep_graph: bool = False) -> None:
        assert keep_graph == self.kept
        self.program: list[Any] = []
        self.ready = False

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        assert framework.zone is None, "a phase is active in a capture"
        assert framework.recording is None, "a capture is active"
        # A pool of the session is a zone's number, of anybody else a pair.
        framework.zone, framework.recording = pool if isinstance(pool, int) else None, []
        framework.captures += 1

    def capture_end(self) -> None:
        assert framework.recording is not None
        self.program, framework.zone, framework.recording = framework.recording, None, None
        if not self.kept:
            self.instantiate()

    def instantiate(self) -> None:
        self.ready = True

    def replay(self) -> None:
        assert self.ready
        fake_core.run(self.program)

    def reset(self) -> None:
        self.ready = False


@contextmanager
def _graph(graph: Any, pool: Any = None, stream: Any = None) -> Iterator[None]:
    graph.capture_begin(pool)
    try:
        yield
    finally:
        graph.capture_end()


cuda = SimpleNamespace(
    CUDAGraph=CUDAGraph,
    graph=_graph,
    graph_pool_handle=lambda: (0, 1),
    mem_get_info=lambda device=None: (framework.free_bytes, 2 << 30),
)


def empty_like(tensor: FakeTensor) -> FakeTensor:
    return framework.alloc(tensor.length)
