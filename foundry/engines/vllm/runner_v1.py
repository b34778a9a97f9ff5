"""vLLM's first model runner: full graphs in a CUDAGraphWrapper around the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from vllm.config import CUDAGraphMode
from vllm.v1.worker import gpu_model_runner

from foundry.engines.vllm import keys
from foundry.engines.vllm.adapter import Adapter, nothing

# The batch, and what tells whether it is for the groups of the KV cache.
_BATCH = ("input_batch", "_init_block_sizes", "_init_kernel_block_sizes")


class AdapterV1(Adapter):
    """Outputs are weak references: their ranges stay mapped as long as the archive's memory does."""

    runner_class = gpu_model_runner.GPUModelRunner

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self._lacking: set[tuple[Any, Any]] = set()

    @contextmanager
    def profiling(self, runner: Any) -> Iterator[None]:
        """Captures to measure them, with a KV cache that goes again; but a batch made for its groups would stay, where
        LOAD has none. Without it both make that batch with the real KV cache."""
        made = vars(runner)
        before = {name: made[name] for name in _BATCH if name in made}
        yield
        made.update(before)

    def restore(self, runner: Any) -> list[str]:
        """Fills the wrapper of the model, and keeps the pieces."""
        self._start.finish()
        if self._start.state != "load":
            return []
        found: dict[Any, Any] = {}
        lacking: list[tuple[Any, Any]] = []
        for mode, descriptors in runner.cudagraph_dispatcher.get_capture_descs():
            if mode == CUDAGraphMode.FULL:
                found = {descriptor: self.entry(mode, descriptor) for descriptor in descriptors}
                lacking += [(mode, descriptor) for descriptor, entry in found.items() if entry is None]
            else:
                lacking += [(mode, descriptor) for descriptor in self.restore_pieces(list(descriptors))]
        if not self._start.loads():
            return []
        if found:
            entries = {descriptor: entry for descriptor, entry in found.items() if entry is not None}
            runner.model.concrete_cudagraph_entries.update(entries)
        self.give_pieces(runner)
        self._lacking = set(lacking)
        return [keys.name(mode, descriptor) for mode, descriptor in lacking]

    def skipped(self, runner: Any, missing: list[str]) -> Iterator[AbstractContextManager[Any]]:
        """As for both. Workspaces stay open: no warm-up has grown them."""
        yield from super().skipped(runner, missing)
        if not missing:
            # As after a capture: from now on one is a mistake that vLLM reports.
            gpu_model_runner.set_cudagraph_capturing_enabled(False)
            yield patch.object(runner, "_dummy_sampler_run", nothing)
            return
        original = runner._capture_cudagraphs

        # Releases from 0.26 hand over a profiler, too.
        def capture(batch_descriptors: Any, cudagraph_runtime_mode: Any, *args: Any, **kwargs: Any) -> None:
            wanted = [d for d in batch_descriptors if (cudagraph_runtime_mode, d) in self._lacking]
            original(wanted, cudagraph_runtime_mode, *args, **kwargs)

        yield patch.object(runner, "_capture_cudagraphs", capture)
