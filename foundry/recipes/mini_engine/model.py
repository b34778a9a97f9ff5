"""A small decoder: weights, paged KV cache, input buffers and one decode forward, all on the simulated driver."""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from foundry.recipes.mini_engine.attention import AttentionShape, attention
from foundry.recipes.mini_engine.device import Workspace

if TYPE_CHECKING:
    from foundry.recipes.mini_engine.arrays import DeviceArray
    from foundry.recipes.mini_engine.device import Device
    from foundry.recipes.mini_engine.kernels import Kernels

EPSILON = 1e-6
LARGE_TILE_FLOATS = 256 * 64
THREADS = 128


@dataclass(frozen=True)
class ModelConfig:
    """Sizes. The defaults keep a start on the simulated driver well under two seconds."""

    layers: int = 2
    hidden: int = 64
    q_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 8
    ffn: int = 128
    vocabulary: int = 256
    vocabulary_shards: int = 4
    max_length: int = 256
    page: int = 16
    split_block: int = 16
    scratch_width: int = 128
    fixed_splits: int | None = None
    seed: int = 1
    temperature: float = 0.8
    logit_scale: float = 1.5

    @property
    def q_width(self) -> int:
        return self.q_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        return self.q_width + 2 * self.kv_width

    @property
    def max_pages(self) -> int:
        """Pages of the longest sequence."""
        return -(-self.max_length // self.page)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every weight by name, in the order of loading."""
        shapes: dict[str, tuple[int, ...]] = {
            "embed.tokens": (self.vocabulary, self.hidden),
            "embed.positions": (self.max_length, self.hidden),
        }
        for i in range(self.layers):
            shapes |= {
                f"layers.{i}.attention_norm": (self.hidden,),
                f"layers.{i}.qkv": (self.qkv_width, self.hidden),
                f"layers.{i}.output": (self.hidden, self.q_width),
                f"layers.{i}.ffn_norm": (self.hidden,),
                f"layers.{i}.gate_up": (2 * self.ffn, self.hidden),
                f"layers.{i}.down": (self.hidden, self.ffn),
            }
        shapes["norm"] = (self.hidden,)
        for i in range(self.vocabulary_shards):
            shapes[f"head.{i}"] = (self.vocabulary // self.vocabulary_shards, self.hidden)
        shapes["head.bias"] = (self.vocabulary,)
        return shapes

    def weight_values(self, name: str) -> list[float]:
        """The content of a weight, the same in every process."""
        shape = self.weight_shapes()[name]
        source = random.Random(f"{self.seed}/{name}")
        count = 1
        for n in shape:
            count *= n
        if name.endswith("norm"):
            return [0.75 + 0.5 * source.random() for _ in range(count)]
        spread = 2.0 if name.startswith("embed") else 3.5 / shape[-1] ** 0.5
        return [spread * (source.random() - 0.5) for _ in range(count)]


class ScaleArgs(ctypes.Structure):
    """Argument of scale_bias, by value, with padding."""

    _fields_ = [
        ("kind", ctypes.c_char),
        ("y", ctypes.c_uint64),
        ("rows", ctypes.c_short),
        ("bias", ctypes.c_uint64),
        ("scale", ctypes.c_float),
        ("width", ctypes.c_int),
    ]


class KvShape(ctypes.Structure):
    """Argument of write_kv, by value."""

    _fields_ = [
        ("kv_heads", ctypes.c_int),
        ("head_dim", ctypes.c_int),
        ("row_width", ctypes.c_int),
        ("key_at", ctypes.c_int),
    ]


@dataclass
class Buffers:
    """Persistent inputs that the host writes before each step; row i is sequence i of the batch. All int32."""

    ids: DeviceArray
    positions: DeviceArray
    slots: DeviceArray  # cache slot that the new token goes to; negative: padding
    lengths: DeviceArray  # keys to attend to, with the new one; 0: padding
    block_table: DeviceArray  # [batch][max_pages]

    def named(self) -> dict[str, DeviceArray]:
        """The buffers by name."""
        return dict(vars(self))

    @staticmethod
    def shapes(config: ModelConfig, max_batch: int) -> dict[str, tuple[int, ...]]:
        """Shapes by name, in the order of creation."""
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("ids", "positions", "slots", "lengths"), (max_batch,))
        shapes["block_table"] = (max_batch, config.max_pages)
        return shapes


class StepOutputs(NamedTuple):
    """What one forward returns: rows as given, memory from the pool of the current stream."""

    tokens: DeviceArray  # [batch] int32: the likeliest
    sampled: DeviceArray  # [batch] int32: drawn with the default generator
    logits: DeviceArray  # [batch][vocabulary]
    step: DeviceArray  # [1] int32: how many forwards the module has counted


@dataclass
class Model:
    """The decoder. Weights and cache are filled in by the engine's phases."""

    device: Device
    kernels: Kernels
    config: ModelConfig
    weights: dict[str, DeviceArray] = field(default_factory=dict)
    keys: list[DeviceArray] = field(default_factory=list)  # per layer: [slots][kv_heads][head_dim]
    values: list[DeviceArray] = field(default_factory=list)

    # Created by the first forward, used by all later ones and by graphs:
    head_table: DeviceArray | None = None  # device pointers of the head's shards
    hidden_states: DeviceArray | None = None  # [max_batch][hidden], the engine's persistent output
    side_stream: int = 0

    def __post_init__(self) -> None:
        self.workspace = Workspace(self.device)
        self.attention_shape = AttentionShape(
            self.config.q_heads,
            self.config.kv_heads,
            self.config.head_dim,
            self.config.page,
            self.config.split_block,
            self.config.scratch_width,
            self.config.fixed_splits,
        )

    def prepare(self, max_batch: int) -> None:
        """Makes what forwards make lazily; outside a capture, since it copies from the host."""
        if self.side_stream == 0:
            self.side_stream = self.device.driver.stream()
        if self.head_table is None:
            shards = [self.weights[f"head.{i}"].address for i in range(self.config.vocabulary_shards)]
            self.head_table = self.device.array((len(shards),), shards, "uint64")
        if self.hidden_states is None:
            self.hidden_states = self.device.zeros((max_batch, self.config.hidden))

    def forward(self, inputs: Buffers, batch: int, max_length: int) -> StepOutputs:
        """One step for the first `batch` rows. `max_length` bounds the lengths and decides attention's split."""
        device, launch, c, w = self.device, self.kernels.launch, self.config, self.weights
        assert self.hidden_states is not None and self.head_table is not None  # prepare() came first

        # The step counter runs beside the layers and joins before the outputs are used.
        step = device.zeros((1,), "int32")
        fork = device.driver.event()
        device.driver.event_record(fork, device.stream)
        device.driver.stream_wait(self.side_stream, fork)
        with device.on_stream(self.side_stream):
            launch("count_step", (1, 1, 1), 1, step)
        join = device.driver.event()
        device.driver.event_record(join, self.side_stream)

        hidden = device.empty((batch, c.hidden))
        launch(
            "embedding", (batch, 1, 1), THREADS, hidden, w["embed.tokens"], w["embed.positions"], inputs.ids,
            inputs.positions, c.hidden,
        )  # fmt: skip
        for i in range(c.layers):
            self._layer(i, hidden, inputs, batch, max_length)
        normed = self._final_norm(hidden, batch)
        device.driver.copy_async(self.hidden_states.address, normed.address, normed.nbytes, device.stream)

        logits = device.empty((batch, c.vocabulary))
        shard = c.vocabulary // c.vocabulary_shards
        launch(
            "grouped_gemv", (batch, c.vocabulary_shards, 1), THREADS, logits, self.head_table, normed,
            c.vocabulary_shards, shard, c.hidden,
        )  # fmt: skip
        scale = ScaleArgs(b"b", logits.address, batch, w["head.bias"].address, 1.0, c.vocabulary)
        launch("scale_bias", (batch, 1, 1), THREADS, scale, packed=True)
        tokens = device.empty((batch,), "int32")
        launch("argmax", (batch, 1, 1), THREADS, tokens, logits, c.vocabulary)
        sampled = device.empty((batch,), "int32")
        launch(
            "sample", (batch, 1, 1), THREADS, sampled, logits, c.vocabulary, c.temperature, device.generator.state(4)
        )
        device.driver.stream_wait(device.stream, join)
        device.driver.event_destroy(fork)
        device.driver.event_destroy(join)
        return StepOutputs(tokens, sampled, logits, step)

    def _layer(self, i: int, hidden: DeviceArray, inputs: Buffers, batch: int, max_length: int) -> None:
        device, launch, c = self.device, self.kernels.launch, self.config
        w = {name: self.weights[f"layers.{i}.{name}"] for name in ("attention_norm", "qkv", "output", "ffn_norm",
                                                                    "gate_up", "down")}  # fmt: skip
        normed = device.empty((batch, c.hidden))
        launch("rms_norm", (batch, 1, 1), THREADS, normed, hidden, w["attention_norm"], c.hidden, EPSILON)
        qkv = device.empty((batch, c.qkv_width))
        self._gemm(qkv, normed, w["qkv"])
        shape = KvShape(c.kv_heads, c.head_dim, c.qkv_width, c.q_width)
        launch("write_kv", (batch, 1, 1), THREADS, self.keys[i], self.values[i], qkv, inputs.slots, shape)
        mixed = attention(
            device, self.kernels, self.attention_shape, qkv, self.keys[i], self.values[i],
            inputs.block_table, inputs.lengths, max_length,
        )  # fmt: skip
        projected = device.empty((batch, c.hidden))
        self._gemm(projected, mixed, w["output"], packed=True)
        self._add(hidden, projected)

        launch("rms_norm", (batch, 1, 1), THREADS, normed, hidden, w["ffn_norm"], c.hidden, EPSILON)
        gate_up = self.workspace.get(batch * 2 * c.ffn)
        self._gemm(gate_up.rows(0, batch * 2 * c.ffn).reshape(batch, 2 * c.ffn), normed, w["gate_up"])
        activated = device.empty((batch, c.ffn))
        launch("silu_mul", (batch, 1, 1), THREADS, activated, gate_up, c.ffn)
        self._gemm(projected, activated, w["down"], large=True)
        self._add(hidden, projected)

    def _gemm(self, y: DeviceArray, x: DeviceArray, w: DeviceArray, large: bool = False, packed: bool = False) -> None:
        (n, k), rows = w.shape, x.shape[0]
        shared = 4 * (k + (LARGE_TILE_FLOATS if large else 0))
        name = "gemm_large" if large else "gemm"
        grid = (rows, -(-n // THREADS), 1)
        self.kernels.launch(name, grid, THREADS, y, x, w, n, k, shared_bytes=shared, packed=packed)

    def _add(self, y: DeviceArray, x: DeviceArray) -> None:
        self.kernels.launch("add", (-(-y.size // THREADS), 1, 1), THREADS, y, x, y.size)

    def _final_norm(self, hidden: DeviceArray, batch: int) -> DeviceArray:
        normed = self.device.empty((batch, self.config.hidden))
        arguments = (normed, hidden, self.weights["norm"], self.config.hidden, EPSILON)
        if self.device.capability[0] >= 9:  # thread block clusters came with sm_90
            self.kernels.launch("rms_norm_cluster", (2 * batch, 1, 1), THREADS, *arguments, cluster=2)
        else:
            self.kernels.launch("rms_norm", (batch, 1, 1), THREADS, *arguments)
        return normed
