"""SGLang 0.5.12 and 0.5.13: one class, CudaGraphRunner, captures and replays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from foundry.engines.sglang.adapter import Adapter, Hook
from foundry.engines.sglang.seams import CLASSIC_RUNNER, RUNNER


class Classic(Adapter):
    """Replaces what captures one size; the loop over sizes stays SGLang's."""

    def __init__(self) -> None:
        super().__init__()
        self._dry = False  # the state of a size is made, without a capture

    def hooks(self) -> list[tuple[str, Hook]]:
        """See Adapter.hooks."""
        return [
            *super().hooks(),
            (f"{RUNNER}.ModelRunner.init_memory_pool", self.memory_pool),
            (f"{RUNNER}.ModelRunner._profile_available_bytes", self.profile_available_bytes),
            (f"{RUNNER}.ModelRunner.init_attention_backend", self.in_buffers),
            (f"{CLASSIC_RUNNER}.CudaGraphRunner.__init__", self.construct),
            (f"{CLASSIC_RUNNER}.CudaGraphRunner.capture", self.capture),
            (f"{CLASSIC_RUNNER}.CudaGraphRunner.capture_one_batch_size", self.capture_one),
            (f"{CLASSIC_RUNNER}.CudaGraphRunner._capture_graph", self.capture_graph),
            (f"{CLASSIC_RUNNER}.CudaGraphRunner._create_device_graph", self.create_graph),
        ]

    def graph_names(self, graph_runner: Any) -> list[str]:
        """Largest first, as SGLang captures."""
        return [_name(size) for size in reversed(graph_runner.capture_bs)]

    def capture_one(self, original: Hook, graph_runner: Any, bs: int, *args: Any, **kwargs: Any) -> Any:
        """(graph, outputs) of one size."""
        if not self._captures or self._dry:
            return original(graph_runner, bs, *args, **kwargs)
        kept = self.restored(_name(bs))
        if kept is not None:
            return kept
        with self._start.substituted():
            graph, output = original(graph_runner, bs, *args, **kwargs)
        self.adopt(_name(bs), graph, output)
        return graph, output

    def make_state(self, graph_runner: Any) -> None:
        """SGLang's own preparation of every size, with a forward that does nothing."""
        import torch

        self._dry, graph_runner.stream = True, torch.cuda.current_stream()
        try:
            for size in reversed(graph_runner.capture_bs):
                graph_runner.capture_one_batch_size(size, _no_forward)
        finally:
            self._dry = False

    def create_graph(self, original: Hook, graph_runner: Any) -> Any:
        """No graph where none is captured."""
        return None if self._dry else original(graph_runner)

    def capture_graph(self, original: Hook, graph_runner: Any, *args: Any, **kwargs: Any) -> Any:
        """No capture where only state is made."""
        return None if self._dry else original(graph_runner, *args, **kwargs)

    @contextmanager
    def nothing_to_freeze(self, everything_restored: bool) -> Iterator[None]:
        """See Adapter.nothing_to_freeze."""
        from sglang.srt.model_executor import cuda_graph_runner

        with patch.object(cuda_graph_runner, "freeze_gc", _no_freeze) if everything_restored else nullcontext():
            yield


def _name(size: int) -> str:
    return f"decode/{size}"


def _no_forward(*args: Any, **kwargs: Any) -> None:
    return None


@contextmanager
def _no_freeze(enable_cudagraph_gc: bool) -> Iterator[None]:
    yield
