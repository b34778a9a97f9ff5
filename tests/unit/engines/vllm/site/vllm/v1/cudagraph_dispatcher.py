from __future__ import annotations

from typing import Any

from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor


class CudagraphDispatcher:
    def __init__(self, config: Any) -> None:
        self.config = config

    def get_capture_descs(self) -> list[tuple[CUDAGraphMode, list[BatchDescriptor]]]:
        compilation = self.config.compilation_config
        sizes = sorted(compilation.cudagraph_capture_sizes, reverse=True)
        full = (CUDAGraphMode.FULL, [BatchDescriptor(n, n, True) for n in sizes])
        if compilation.cudagraph_mode != CUDAGraphMode.FULL_AND_PIECEWISE:
            return [full]
        return [(CUDAGraphMode.PIECEWISE, [BatchDescriptor(n) for n in sizes]), full]
