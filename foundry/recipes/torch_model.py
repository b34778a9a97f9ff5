"""A decoder in PyTorch for the recipes and GPU tests: one decode step over a KV cache, bf16, no position encoding.

Every tensor gets its content from a generator seeded by its name, so that two processes agree whatever the order in
which they allocate.
"""

# PyTorch's classes are Any where it is not installed.
# mypy: disallow-subclassing-any=False

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of the decoder; `cache_length` is in tokens per sequence."""

    layers: int = 28
    hidden: int = 1024
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    mlp: int = 3072
    vocabulary: int = 16384
    cache_length: int = 256
    max_batch: int = 512
    attention: str = "flash"
    dropout: float = 0.0


def filled(name: str, shape: Sequence[int], std: float = 0.02, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A CUDA tensor of normal numbers that depend on the name only; leaves no temporary behind."""
    return fill(torch.empty(tuple(shape), device="cuda", dtype=dtype), name, std)


def fill(tensor: torch.Tensor, name: str, std: float) -> torch.Tensor:
    """Overwrites a CUDA tensor with the numbers of that name."""
    generator = torch.Generator("cuda").manual_seed(zlib.crc32(name.encode()))
    return tensor.normal_(0.0, std, generator=generator)


class Layer(torch.nn.Module):
    """Attention and MLP of one layer. `reverse` creates the weights in the opposite order."""

    def __init__(self, config: DecoderConfig, index: int, reverse: bool) -> None:
        super().__init__()
        c = config
        self.config = c
        shapes = {
            "qkv": (c.hidden, (c.heads + 2 * c.kv_heads) * c.head_dim),
            "out": (c.heads * c.head_dim, c.hidden),
            "gate_up": (c.hidden, 2 * c.mlp),
            "down": (c.mlp, c.hidden),
            "norm1": (c.hidden,),
            "norm2": (c.hidden,),
        }
        for name in sorted(shapes, reverse=reverse):
            std, full = (0.1, f"layers.{index}.{name}") if name.startswith("norm") else (0.02, f"layers.{index}.{name}")
            tensor = filled(full, shapes[name], std)
            self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """One step for the rows of x; writes this step's key and value at `positions`, attends to the whole cache."""
        c, n = self.config, x.shape[0]
        h = F.rms_norm(x, (c.hidden,), self.norm1)
        qkv = (h @ self.qkv).view(n, c.heads + 2 * c.kv_heads, 1, c.head_dim)
        q, k, v = qkv.split([c.heads, c.kv_heads, c.kv_heads], dim=1)
        at = positions.view(n, 1, 1, 1).expand(n, c.kv_heads, 1, c.head_dim)
        keys, values = keys[:n].scatter_(2, at, k), values[:n].scatter_(2, at, v)
        o = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        x = x + o.reshape(n, c.heads * c.head_dim) @ self.out
        if c.dropout:
            x = F.dropout(x, c.dropout)
        gate, up = (F.rms_norm(x, (c.hidden,), self.norm2) @ self.gate_up).chunk(2, dim=-1)
        return x + (F.silu(gate) * up) @ self.down


class Decoder(torch.nn.Module):
    """Embedding, layers, final norm and tied head."""

    def __init__(self, config: DecoderConfig, reverse: bool = False) -> None:
        super().__init__()
        self.config = config
        self.embedding = torch.nn.Parameter(
            filled("embedding", (config.vocabulary, config.hidden), 1.0), requires_grad=False
        )
        self.norm = torch.nn.Parameter(filled("norm", (config.hidden,), 0.1), requires_grad=False)
        order = range(config.layers - 1, -1, -1) if reverse else range(config.layers)
        made = {i: Layer(config, i, reverse) for i in order}
        self.layers = torch.nn.ModuleList(made[i] for i in range(config.layers))

    def forward(
        self, ids: torch.Tensor, positions: torch.Tensor, caches: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        """Next tokens and last hidden states of one step."""
        x = F.embedding(ids, self.embedding)
        with sdpa_kernel(BACKENDS[self.config.attention]):
            for layer, (keys, values) in zip(self.layers, caches, strict=True):
                x = layer(x, keys, values, positions)
        x = F.rms_norm(x, (self.config.hidden,), self.norm)
        return {"tokens": (x @ self.embedding.t()).argmax(-1), "hidden": x}


Caches = list[tuple[torch.Tensor, torch.Tensor]]


def make_caches(config: DecoderConfig) -> Caches:
    """Keys and values of every layer, as if `cache_length` tokens had been decoded."""
    shape = (config.max_batch, config.kv_heads, config.cache_length, config.head_dim)

    def empty() -> torch.Tensor:
        return torch.empty(shape, device="cuda", dtype=torch.bfloat16)

    caches = [(empty(), empty()) for _ in range(config.layers)]
    fill_caches(caches)
    return caches


def fill_caches(caches: Caches) -> None:
    """The content that decoding starts from: warm-ups, which a process that LOADs does not run, write to caches."""
    for i, (keys, values) in enumerate(caches):
        fill(keys, f"keys.{i}", 1.0)
        fill(values, f"values.{i}", 1.0)


def batch_sizes(largest: int, step: int) -> list[int]:
    """1, 2, 4, then every multiple of `step` up to `largest`."""
    return sorted({n for n in (1, 2, 4) if n <= largest} | set(range(step, largest + 1, step)))
