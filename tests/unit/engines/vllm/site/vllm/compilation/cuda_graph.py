from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch

import vllm
from vllm.compilation import monitor
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context


@dataclass
class CUDAGraphEntry:
    batch_descriptor: Any
    cudagraph: Any = None
    output: Any = None
    input_addresses: list[int] | None = None


class CUDAGraphWrapper:
    _all_instances: weakref.WeakSet[Any] = weakref.WeakSet()

    def __init__(self, runnable: Any, vllm_config: Any, runtime_mode: Any, cudagraph_options: Any = None) -> None:
        self.runnable, self.vllm_config, self.runtime_mode = runnable, vllm_config, runtime_mode
        self.concrete_cudagraph_entries: dict[Any, CUDAGraphEntry] = {}
        CUDAGraphWrapper._all_instances.add(self)

    def unwrap(self) -> Any:
        return self.runnable

    def __call__(self, *args: Any) -> Any:
        context = get_forward_context()
        if context.cudagraph_runtime_mode in (CUDAGraphMode.NONE,) or (
            context.cudagraph_runtime_mode != self.runtime_mode
        ):
            return self.runnable(*args)
        key = context.batch_descriptor
        entry = self.concrete_cudagraph_entries.setdefault(key, CUDAGraphEntry(key))
        if entry.cudagraph is None:
            assert monitor.enabled_now, "captures are over"
            vllm.log.append(f"capture {self.runtime_mode.name} {key.num_tokens}")
            entry.input_addresses = [x.address for x in args]
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=(0, 7)):
                output = self.runnable(*args)
            entry.output, entry.cudagraph = output, graph
            return output
        entry.cudagraph.replay()
        return entry.output
