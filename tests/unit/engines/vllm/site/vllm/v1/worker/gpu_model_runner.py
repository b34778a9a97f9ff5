from __future__ import annotations

from typing import Any

import torch

import vllm
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.compilation.monitor import set_cudagraph_capturing_enabled
from vllm.config import CUDAGraphMode
from vllm.forward_context import run_with
from vllm.model import Model
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.worker.workspace import workspace


class InputBatch:
    def __init__(self) -> None:
        self.table = torch.framework.tensor(bytes(32))


class GPUModelRunner:
    def __init__(self, vllm_config: Any, device: Any) -> None:
        self.vllm_config, self.device = vllm_config, device
        self.input_batch = InputBatch()
        self._init_block_sizes = [16]
        self.model: Any = None
        self.kv_caches: list[Any] = []
        self.attn_groups: list[Any] = []
        self.cudagraph_dispatcher = CudagraphDispatcher(vllm_config)

    def load_model(self) -> None:
        self.model = CUDAGraphWrapper(Model(self.vllm_config), self.vllm_config, CUDAGraphMode.FULL)

    def get_model(self) -> Any:
        return self.model.unwrap()

    def profile_run(self) -> None:
        vllm.log.append("profile")
        self.scratch = run_with(CUDAGraphMode.NONE, None, self.model, self.input_ids)

    @property
    def input_ids(self) -> Any:
        """All that steps write is in the batch here."""
        return self.input_batch.table

    def profile_cudagraph_memory(self) -> int:
        self.initialize_kv_cache({"bytes": 0})
        self.kv_caches.clear()
        return 0

    def initialize_kv_cache(self, kv_cache_config: Any) -> None:
        block_sizes = [16] * self.vllm_config.additional_config.get("groups", 1)
        if block_sizes != self._init_block_sizes:
            self._init_block_sizes, self.input_batch = block_sizes, InputBatch()
        self.kv_caches = [torch.framework.tensor(bytes(64))]

    def _dummy_run(self, num_tokens: int, cudagraph_runtime_mode: Any = CUDAGraphMode.NONE, desc: Any = None) -> Any:
        vllm.log.append(f"dummy {cudagraph_runtime_mode.name} {num_tokens}")
        out = run_with(cudagraph_runtime_mode, desc, self.model, self.input_ids[:num_tokens])
        return out, out

    def _dummy_sampler_run(self, hidden_states: Any) -> None:
        vllm.log.append("sampler")
        assert hidden_states.length

    if vllm.release >= (0, 26):

        def _capture_cudagraphs(
            self, batch_descriptors: Any, cudagraph_runtime_mode: Any, profiler: Any = None
        ) -> None:
            assert profiler == "profiler"
            self._capture_each(batch_descriptors, cudagraph_runtime_mode)
    else:

        def _capture_cudagraphs(self, batch_descriptors: Any, cudagraph_runtime_mode: Any) -> None:
            self._capture_each(batch_descriptors, cudagraph_runtime_mode)

    def _capture_each(self, descriptors: Any, mode: Any) -> None:
        for desc in descriptors:
            self._dummy_run(desc.num_tokens)
            self._dummy_run(desc.num_tokens, mode, desc)

    def capture_model(self) -> int:
        set_cudagraph_capturing_enabled(True)
        more = {"profiler": "profiler"} if vllm.release >= (0, 26) else {}
        for runtime_mode, batch_descs in self.cudagraph_dispatcher.get_capture_descs():
            self._capture_cudagraphs(batch_descriptors=batch_descs, cudagraph_runtime_mode=runtime_mode, **more)
        set_cudagraph_capturing_enabled(False)
        workspace.locked = True
        return 4096

    def decode(self, data: bytes, mode: CUDAGraphMode = CUDAGraphMode.FULL) -> bytes:
        """What a step computes, by the graph of that size."""
        n = len(data)
        self.input_ids[:n].data = data
        descs = dict(self.cudagraph_dispatcher.get_capture_descs())[mode]
        desc = next(d for d in descs if d.num_tokens == n)
        out: bytes = run_with(mode, desc, self.model, self.input_ids[:n]).data
        return out
