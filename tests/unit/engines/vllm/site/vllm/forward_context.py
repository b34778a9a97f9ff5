from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from vllm.config import CUDAGraphMode


@dataclass(frozen=True)
class BatchDescriptor:
    num_tokens: int
    num_reqs: int | None = None
    uniform: bool = False
    has_lora: bool = False
    num_active_loras: int = 0


current: Any = SimpleNamespace(batch_descriptor=None, cudagraph_runtime_mode=CUDAGraphMode.NONE)


def get_forward_context() -> Any:
    return current


def run_with(mode: CUDAGraphMode, descriptor: BatchDescriptor | None, function: Any, *args: Any) -> Any:
    """set_forward_context around a call."""
    before = vars(current).copy()
    current.batch_descriptor, current.cudagraph_runtime_mode = descriptor, mode
    try:
        return function(*args)
    finally:
        vars(current).update(before)
