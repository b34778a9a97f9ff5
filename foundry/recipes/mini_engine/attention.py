"""Decode attention with FlashAttention 2's split of the keys: scratch per call, of a size that depends on the GPU."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foundry.recipes.mini_engine.arrays import DeviceArray
    from foundry.recipes.mini_engine.device import Device
    from foundry.recipes.mini_engine.kernels import Kernels

MOST_SPLITS = 128
ENOUGH_BLOCKS = 0.8  # of the places on the GPU: no split needed
GOOD_ENOUGH = 0.85  # of the best efficiency


def split_count(work: int, sm_count: int, key_blocks: int) -> int:
    """Into how many parts FlashAttention 2 splits the keys; 1 means no scratch.

    `work` is batch x KV heads (a decode step's query heads of one KV head form one block), `key_blocks` the number of
    key blocks of the longest sequence. The rule is FlashAttention 2's own: two thread blocks run per SM; where the
    work fills 80 % of those places nothing is split; else the smallest count is taken whose last wave is filled to at
    least 85 % of the best that any count reaches. With 8 KV heads that makes batch 21 the largest one with splits on
    108 SMs (21 x 8 < 0.8 x 216 <= 22 x 8), and batch 26 on 132 SMs, as long as the sequences have blocks to split.
    """
    places = 2 * sm_count
    if work >= ENOUGH_BLOCKS * places:
        return 1
    efficiency: dict[int, float] = {}
    for splits in range(1, min(MOST_SPLITS, places, key_blocks) + 1):
        share = math.ceil(key_blocks / splits)
        if splits > 1 and share == math.ceil(key_blocks / (splits - 1)):
            continue  # the same parts as one split fewer, and an empty one
        waves = work * splits / places
        efficiency[splits] = waves / math.ceil(waves)
    best = max(efficiency.values(), default=1.0)
    return next((splits for splits, value in efficiency.items() if value >= GOOD_ENOUGH * best), 1)


class AttentionParams(ctypes.Structure):
    """Argument of the attention kernels, by value."""

    _fields_ = [
        ("q", ctypes.c_uint64),
        ("keys", ctypes.c_uint64),
        ("values", ctypes.c_uint64),
        ("block_table", ctypes.c_uint64),
        ("lengths", ctypes.c_uint64),
        ("out", ctypes.c_uint64),
        ("partial_out", ctypes.c_uint64),
        ("partial_lse", ctypes.c_uint64),
        ("batch", ctypes.c_int),
        ("q_heads", ctypes.c_int),
        ("kv_heads", ctypes.c_int),
        ("head_dim", ctypes.c_int),
        ("rounded_dim", ctypes.c_int),
        ("q_stride", ctypes.c_int),
        ("page", ctypes.c_int),
        ("max_blocks", ctypes.c_int),
        ("splits", ctypes.c_int),
        ("split_block", ctypes.c_int),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_bool),
    ]


@dataclass(frozen=True)
class AttentionShape:
    """What does not change between calls. `split_block` is FlashAttention 2's key block, `page` the cache's.

    `scratch_width` is the head dimension that partial results are padded to. A real engine's is 128; kept at that, the
    scratch of this miniature exceeds 1 MiB as a real one does, and so takes a 20 MiB segment of its own.
    """

    q_heads: int
    kv_heads: int
    head_dim: int
    page: int
    split_block: int
    scratch_width: int
    fixed_splits: int | None = None  # as FlashAttention 3 does for graphs

    def splits(self, batch: int, sm_count: int, max_length: int) -> int:
        """Number of splits of a call."""
        if self.fixed_splits is not None:
            return self.fixed_splits
        return split_count(batch * self.kv_heads, sm_count, math.ceil(max_length / self.split_block))


def attention(
    device: Device,
    kernels: Kernels,
    shape: AttentionShape,
    qkv: DeviceArray,
    keys: DeviceArray,
    values: DeviceArray,
    block_table: DeviceArray,
    lengths: DeviceArray,
    max_length: int,
) -> DeviceArray:
    """One query row per sequence against its keys; returns [batch, q_heads * head_dim]."""
    batch = qkv.shape[0]
    splits = shape.splits(batch, device.sm_count, max_length)
    out = device.empty((batch, shape.q_heads * shape.head_dim))
    partial_lse = device.empty((splits, batch, shape.q_heads)) if splits > 1 else None
    partial_out = device.empty((splits, batch, shape.q_heads, shape.scratch_width)) if splits > 1 else None
    params = AttentionParams(
        q=qkv.address,
        keys=keys.address,
        values=values.address,
        block_table=block_table.address,
        lengths=lengths.address,
        out=out.address,
        partial_out=partial_out.address if partial_out else 0,
        partial_lse=partial_lse.address if partial_lse else 0,
        batch=batch,
        q_heads=shape.q_heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rounded_dim=shape.scratch_width,
        q_stride=qkv.shape[1],
        page=shape.page,
        max_blocks=block_table.shape[1],
        splits=splits,
        split_block=shape.split_block,
        scale=1.0 / math.sqrt(shape.head_dim),
        causal=True,
    )
    name = "attention_split" if splits > 1 else "attention"
    kernels.launch(name, (1, splits, batch * shape.kv_heads), 128, params)
    if splits > 1:
        kernels.launch("attention_combine", (batch * shape.q_heads, 1, 1), 128, params)
    return out
