from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import vllm
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor, run_with

if vllm.release >= (0, 24):

    @dataclass(frozen=True)
    class BatchExecutionDescriptor:
        cg_mode: CUDAGraphMode
        num_tokens: int
        num_reqs: int | None
        uniform_token_count: int | None = None
        num_active_loras: int = 0
else:

    @dataclass(frozen=True)
    class BatchExecutionDescriptor:  # type: ignore[no-redef]
        cg_mode: CUDAGraphMode
        num_tokens: int
        num_reqs: int | None
        uniform_token_count: int | None = None


class CudaGraphManager:
    def __init__(self, vllm_config: Any) -> None:
        self.graphs: dict[Any, Any] = {}
        self._graphs_captured = False
        compilation = vllm_config.compilation_config
        sizes = sorted(compilation.cudagraph_capture_sizes, reverse=True)
        full, pieces = CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE
        self._capture_descs = {full: [BatchExecutionDescriptor(full, n, n, 1) for n in sizes]}
        if compilation.cudagraph_mode == CUDAGraphMode.FULL_AND_PIECEWISE:
            self._capture_descs[pieces] = [BatchExecutionDescriptor(pieces, n, None) for n in sizes]
        self._candidates = {mode: list(descs) for mode, descs in self._capture_descs.items()}

    def needs_capture(self) -> bool:
        return len(self._capture_descs) > 0

    def capture(self, create_forward_fn: Any) -> None:
        for mode in (CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL):
            for desc in self._capture_descs.get(mode, []):
                create_forward_fn(desc)(CUDAGraphMode.NONE)
                if mode == CUDAGraphMode.PIECEWISE:
                    create_forward_fn(desc)(CUDAGraphMode.PIECEWISE)
                    continue
                assert desc not in self.graphs, f"Graph already captured for {desc}"
                vllm.log.append(f"capture FULL {desc.num_tokens}")
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, (0, 7)):
                    create_forward_fn(desc)(CUDAGraphMode.NONE)
                self.graphs[desc] = graph
        self._graphs_captured = True

    def dispatch(self, num_tokens: int, mode: CUDAGraphMode = CUDAGraphMode.FULL) -> Any:
        """The descriptor to run a batch with, or None to run it without a graph."""
        found = (d for d in self._candidates.get(mode, []) if d.num_tokens == num_tokens)
        return next(found, None) if self._graphs_captured else None

    def run_fullgraph(self, desc: Any) -> None:
        assert desc in self.graphs, f"No cudagraph for {desc}"
        self.graphs[desc].replay()


class ModelCudaGraphManager(CudaGraphManager):
    def __init__(self, vllm_config: Any) -> None:
        super().__init__(vllm_config)
        self.hidden_states: Any = None
        self.aux_hidden_states: list[Any] = []
        self.use_aux_hidden_state_outputs = False

    def capture(self, model: Any, input_ids: Any, has_lora: bool, use_aux: bool) -> None:  # type: ignore[override]
        self.use_aux_hidden_state_outputs = use_aux

        def create_forward_fn(desc: Any) -> Any:
            def forward(mode: CUDAGraphMode) -> None:
                more = {"num_active_loras": desc.num_active_loras} if vllm.release >= (0, 24) else {}
                key = BatchDescriptor(desc.num_tokens, has_lora=has_lora, **more)
                out = run_with(mode, key, model, input_ids[: desc.num_tokens])
                if mode == CUDAGraphMode.PIECEWISE:
                    return
                if self.hidden_states is None:
                    self.hidden_states = torch.empty_like(out)
                torch.framework.copy_(self.hidden_states[: desc.num_tokens], out)
                if use_aux:
                    self.aux_hidden_states = self.aux_hidden_states or [torch.empty_like(out)]
                    torch.framework.copy_(self.aux_hidden_states[0][: desc.num_tokens], out)

            return forward

        super().capture(create_forward_fn)

    def run_fullgraph(self, desc: Any) -> Any:
        super().run_fullgraph(desc)
        assert self.hidden_states is not None
        hidden = self.hidden_states[: desc.num_tokens]
        if not self.use_aux_hidden_state_outputs:
            return hidden
        return hidden, [x[: desc.num_tokens] for x in self.aux_hidden_states]
