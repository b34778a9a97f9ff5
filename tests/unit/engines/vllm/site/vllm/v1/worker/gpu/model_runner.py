from __future__ import annotations

from typing import Any

import torch

import vllm
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor, run_with
from vllm.model import Model
from vllm.v1.worker.gpu.cudagraph_utils import ModelCudaGraphManager
from vllm.v1.worker.gpu.model_states.interface import ModelState


class InputBuffers:
    def __init__(self) -> None:
        self.input_ids = torch.framework.tensor(bytes(32))


class GPUModelRunner:
    def __init__(self, vllm_config: Any, device: Any) -> None:
        self.vllm_config, self.device = vllm_config, device
        self.lora_config = vllm_config.lora_config
        self.input_buffers = InputBuffers()
        self.use_aux_hidden_state_outputs = bool(vllm_config.additional_config.get("aux"))
        self.cudagraph_manager: Any = None
        self.model_state = ModelState()
        self.attn_groups: list[Any] = []
        self.model: Any = None

    def load_model(self) -> None:
        self.model = Model(self.vllm_config)

    def get_model(self) -> Any:
        return self.model

    def profile_run(self) -> None:
        vllm.log.append("profile")
        run_with(CUDAGraphMode.NONE, None, self.model, self.input_buffers.input_ids)

    def profile_cudagraph_memory(self) -> int:
        return 0

    def initialize_kv_cache(self, kv_cache_config: Any) -> None:
        self.kv_caches = [torch.framework.tensor(bytes(64))]
        self.cudagraph_manager = ModelCudaGraphManager(self.vllm_config)

    def _dummy_run(self, num_tokens: int, **options: Any) -> Any:
        vllm.log.append(f"dummy {num_tokens}")
        self._step(num_tokens)
        return None, None

    def _step(self, num_tokens: int) -> Any:
        desc = self.cudagraph_manager.dispatch(num_tokens)
        if desc is not None:
            return self.cudagraph_manager.run_fullgraph(desc)
        return run_with(CUDAGraphMode.NONE, None, self.model, self.input_buffers.input_ids[:num_tokens])

    def capture_model(self, *, profile_only: bool = False) -> int:
        if not self.cudagraph_manager.needs_capture():
            return 0
        self.cudagraph_manager.capture(
            self.model,
            self.input_buffers.input_ids,
            has_lora=self.lora_config is not None,
            use_aux=self.use_aux_hidden_state_outputs,
        )
        return 4096

    def decode(self, data: bytes, mode: CUDAGraphMode = CUDAGraphMode.FULL) -> bytes:
        """What a step computes, by the graph of that size."""
        n = len(data)
        self.input_buffers.input_ids[:n].data = data
        manager = self.cudagraph_manager
        desc = manager.dispatch(n, mode)
        assert desc is not None, "graphs are not used"
        if mode == CUDAGraphMode.PIECEWISE:
            key = BatchDescriptor(n, has_lora=self.lora_config is not None)
            out = run_with(mode, key, self.model, self.input_buffers.input_ids[:n])
        else:
            out = manager.run_fullgraph(desc)
            if self.use_aux_hidden_state_outputs:
                out, (auxiliary,) = out
                assert auxiliary.data == out.data
        data_out: bytes = out.data
        return data_out
