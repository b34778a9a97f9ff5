"""As much of PyTorch as captures and pools touch, for machines without it; what is called goes to a log."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class FakeTorch(types.ModuleType):
    """The module `torch`."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.log: list[str] = []
        torch = self

        class BaseGraph:
            """torch._C._CUDAGraph: __new__ and __init__ must agree on keep_graph."""

            def __new__(cls, keep_graph: bool = False) -> BaseGraph:
                made = super().__new__(cls)
                made.kept = keep_graph
                return made

            def __init__(self, keep_graph: bool = False) -> None:
                assert keep_graph == self.kept, "__new__ and __init__ differ"
                self.execs = 0

            def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
                torch.log.append("capture_begin")
                self.pool = pool

            def capture_end(self) -> None:
                torch.log.append("capture_end")
                if not self.kept:
                    self.instantiate()

            def raw_cuda_graph(self) -> int:
                if not self.kept:
                    raise RuntimeError(
                        "You cannot access the raw cudaGraph_t instance unless keep_graph=True\nat x.cpp"
                    )
                return 77

            def instantiate(self) -> None:
                torch.log.append("instantiate")
                self.execs += 1

            def replay(self) -> None:
                torch.log.append("replay")
                torch.generator.offset += torch.drawn

            def reset(self) -> None:
                self.execs = 0

        class Generator:
            def __init__(self) -> None:
                self.seed, self.offset = 1, 0

            def initial_seed(self) -> int:
                return self.seed

            def get_offset(self) -> int:
                return self.offset

            def manual_seed(self, seed: int) -> None:
                self.seed, self.offset = seed, 0

            def set_offset(self, offset: int) -> None:
                self.offset = offset

        @contextmanager
        def graph(graph: Any, **options: Any) -> Iterator[None]:
            graph.capture_begin()
            yield
            graph.capture_end()

        self.drawn = 0
        self.initialized = True
        self.generator = Generator()
        self.cuda = types.ModuleType("torch.cuda")
        self.cuda.__dict__.update(
            CUDAGraph=BaseGraph,
            is_initialized=lambda: self.initialized,
            Stream=lambda device: f"stream of {device}",
            graph=graph,
            graph_pool_handle=lambda: (0, 1),
            default_generators=[self.generator],
            synchronize=lambda device=None: None,
        )
        graphs = types.ModuleType("torch.cuda.graphs")
        graphs.CUDAGraph = BaseGraph  # type: ignore[attr-defined]
        self.submodules = {"torch.cuda": self.cuda, "torch.cuda.graphs": graphs}
        self._C = types.SimpleNamespace(
            _cuda_clearCublasWorkspaces=lambda: self.log.append("clear workspaces"),
            _cuda_beginAllocateToPool=lambda device, pool: self.log.append(f"begin {pool}"),
            _cuda_endAllocateToPool=lambda device, pool: self.log.append(f"end {pool}"),
            _cuda_releasePool=lambda device, pool: self.log.append(f"release {pool}"),
        )


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorch]:
    """The stand-in under the name `torch`; Foundry's modules that imported another one are imported anew."""
    fake = FakeTorch()
    mine = [name for name in sys.modules if name.startswith("foundry.torch.")]
    kept = {name: sys.modules.pop(name) for name in mine}
    for name, module in {"torch": fake, **fake.submodules}.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield fake
    for name in [name for name in sys.modules if name.startswith("foundry.torch.")]:
        del sys.modules[name]
    sys.modules.update(kept)
