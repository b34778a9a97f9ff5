from __future__ import annotations

from typing import Any

import torch

import vllm
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.compilation.piecewise_backend import PiecewiseBackend
from vllm.config import CompilationMode, CUDAGraphMode
from vllm.v1.worker.workspace import workspace

WEIGHTS = {"w0": bytes(range(32)), "w1": bytes(range(100, 132))}


class Model:
    """x + w0 + w1; in two pieces if compiled, which happens in its first forward."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.tensors = {name: torch.framework.tensor(data) for name, data in WEIGHTS.items()}
        self.pieces: list[Any] | None = None

    def _piece(self, name: str) -> Any:
        return lambda x: torch.framework.add(x, self.tensors[name][: x.length])

    def __call__(self, x: Any) -> Any:
        workspace.get(x.length)
        if self.pieces is None:
            pieces = [PiecewiseBackend(self._piece(name), i) for i, name in enumerate(WEIGHTS)]
            compilation = self.config.compilation_config
            if compilation.mode == CompilationMode.VLLM_COMPILE:
                vllm.log.append("compile")
            if compilation.cudagraph_mode == CUDAGraphMode.FULL_AND_PIECEWISE:
                self.pieces = [CUDAGraphWrapper(p, self.config, CUDAGraphMode.PIECEWISE) for p in pieces]
            else:
                self.pieces = pieces
        for piece in self.pieces:
            x = piece(x)
        return x


def expected(data: bytes) -> bytes:
    return bytes((a + b + c) & 255 for a, b, c in zip(data, WEIGHTS["w0"], WEIGHTS["w1"], strict=False))
