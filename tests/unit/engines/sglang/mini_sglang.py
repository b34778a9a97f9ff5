"""Stand-ins for SGLang: what the plugin's hooks are put around, with the same names, signatures and order of calls.

`modules("classic")` are those of 0.5.12 and 0.5.13, `modules("backends")` those of 0.5.14 and later.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

log: list[str] = []


@dataclasses.dataclass
class LogitsProcessorOutput:
    next_token_logits: Any
    hidden_states: Any = None
    customized_info: Any = None


@dataclasses.dataclass
class ServerArgs:
    model_path: str = ""
    dtype: str = "auto"
    page_size: int | None = None
    tp_size: int = 1
    speculative_algorithm: str | None = None
    cuda_graph_bs: list[int] | None = None
    disable_cuda_graph: bool = False
    port: int = 30000
    random_seed: int | None = None
    enable_lora: bool | None = None
    moe_a2a_backend: str = "none"


class HfConfig:
    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def to_dict(self) -> dict[str, Any]:
        return dict(self.fields)


def model_config(**fields: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(hf_config=HfConfig(**fields), dtype="bfloat16", quantization=None, context_len=2048)


class Attention:
    """Keeps wrappers for every size, as FlashInfer's does."""

    def __init__(self) -> None:
        self.wrappers: dict[int, str] = {}

    def init_forward_metadata_out_graph(self, batch: int, in_capture: bool = False) -> None:
        log.append(f"state {batch}")
        self.wrappers[batch] = f"wrapper {batch}"


class TritonAttnBackend(Attention):
    pass


@contextmanager
def freeze_gc(enable_cudagraph_gc: bool) -> Iterator[None]:
    log.append("freeze")
    yield


class ModelRunner:
    """One whose start goes through every seam of both generations that it is asked for."""

    def __init__(self, attention: type[Attention] = TritonAttnBackend, sizes: tuple[int, ...] = (1, 2, 4)) -> None:
        self.server_args = ServerArgs(cuda_graph_bs=list(sizes))
        self.model_config = model_config(hidden_size=64)
        self.device, self.dp_rank, self.is_draft_worker, self.is_generation = "cuda", None, False, True
        self.mambaish_config = None
        self.attention_class = attention
        self.available = 1000
        self.fails: BaseException | None = None

    def init_torch_distributed(self) -> float:
        log.append("device")
        return 1.0

    def load_model(self) -> None:
        log.append("load")
        self.model = "model"

    def _profile_available_bytes(self, pre_model_load_memory: int) -> int:
        return self.available

    def init_memory_pool(self, pre_model_load_memory: int) -> None:
        self.pool_bytes = self._profile_available_bytes(pre_model_load_memory)
        log.append("pool")
        self.token_to_kv_pool, self.req_to_token_pool = "kv", "requests"

    def init_attention_backend(self) -> None:
        log.append("attention")
        self.attn_backend = self.attention_class()

    def alloc_memory_pool(self, memory_pool_config: Any = None) -> None:
        self.init_memory_pool(1)

    def init_attention_backends(self) -> None:
        self.init_attention_backend()

    def forward(self, size: int) -> LogitsProcessorOutput:
        if self.fails is not None:
            raise self.fails
        log.append(f"forward {size}")
        return LogitsProcessorOutput(f"logits {size}")

    def start_classic(self, runner_class: Any) -> Any:
        self.init_torch_distributed()
        self.load_model()
        self.init_memory_pool(1)
        self.init_attention_backend()
        self.graph_runner = runner_class(self)
        return self.graph_runner

    def start_backends(self, runner_class: Any, eager_class: Any) -> Any:
        self.init_torch_distributed()
        self.load_model()
        self.alloc_memory_pool()
        self.init_attention_backends()
        self.eager_runner = eager_class(self)
        self.decode_cuda_graph_runner = runner_class(self)
        return self.decode_cuda_graph_runner


class Graph:
    def __init__(self, name: str) -> None:
        self.name = name

    def replay(self) -> None:
        log.append(f"native replay {self.name}")


class CudaGraphRunner:
    def __init__(self, model_runner: ModelRunner, *, attn_backend: Any = None) -> None:
        self.model_runner, self.attn_backend = model_runner, attn_backend or model_runner.attn_backend
        self.capture_bs = model_runner.server_args.cuda_graph_bs or []
        self.graphs: dict[int, Any] = {}
        self.output_buffers: dict[int, Any] = {}
        log.append("buffers")
        self.buffers, self.buffer_registry = types.SimpleNamespace(input_ids="ids"), "registry"
        self.capture()

    def capture(self) -> None:
        import sys

        module = sys.modules["sglang.srt.model_executor.cuda_graph_runner"]
        with module.freeze_gc(False):
            self.stream = "capture stream"
            for bs in reversed(self.capture_bs):
                graph, output = self.capture_one_batch_size(bs, lambda b=bs: self.model_runner.forward(b))
                self.graphs[bs], self.output_buffers[bs] = graph, output

    def _create_device_graph(self) -> Any:
        return Graph("new")

    def _capture_graph(self, graph: Any, pool: Any, stream: Any, run_once_fn: Callable[[], Any]) -> Any:
        log.append("capture")
        return run_once_fn()

    def capture_one_batch_size(self, bs: int, forward: Callable[..., Any], stream_idx: int | None = None) -> Any:
        graph = self._create_device_graph()
        self.attn_backend.init_forward_metadata_out_graph(bs, in_capture=True)
        for _ in range(2):
            forward()
        return graph, self._capture_graph(graph, "pool", self.stream, forward)


@dataclasses.dataclass(frozen=True)
class ShapeKey:
    size: int
    stream_idx: int | None = None
    variant_label: str | None = None


class FullCudaGraphBackend:
    def __init__(self) -> None:
        self._graphs: dict[Any, Any] = {}
        self._outputs: dict[Any, Any] = {}

    def capture_one(
        self, shape_key: Any, forward_fn: Callable[[], Any], dummies: Any = None, post_warmup_hook: Any = None
    ) -> None:
        for _ in range(2):
            forward_fn()
        log.append("capture")
        self._graphs[shape_key], self._outputs[shape_key] = Graph(str(shape_key.size)), forward_fn()

    def replay(self, shape_key: Any, static_forward_batch: Any, **kwargs: Any) -> Any:
        self._graphs[shape_key].replay()
        return self._outputs[shape_key]


class BreakableCudaGraphBackend(FullCudaGraphBackend):
    pass


class EagerRunner:
    def __init__(self, model_runner: ModelRunner) -> None:
        log.append("eager buffers")


class DecodeCudaGraphRunner:
    backend_class: type[FullCudaGraphBackend] = FullCudaGraphBackend

    def __init__(self, model_runner: ModelRunner, *, attn_backend: Any = None) -> None:
        self.model_runner, self.attn_backend = model_runner, attn_backend or model_runner.attn_backend
        self.capture_bs = model_runner.server_args.cuda_graph_bs or []
        log.append("buffers")
        self.buffers, self.buffer_registry = types.SimpleNamespace(input_ids="ids"), "registry"
        self.backend = self.backend_class()
        self.in_graph_metadata_prep_done: Any = None
        self.capture()

    def _make_graph_key(self, bs: int, stream_idx: int | None = None, variant_label: str | None = None) -> ShapeKey:
        return ShapeKey(bs, stream_idx, variant_label)

    def capture(self) -> None:
        import sys

        module = sys.modules["sglang.srt.model_executor.runner.decode_cuda_graph_runner"]
        with module.freeze_gc(False):
            for bs in reversed(self.capture_bs):
                self.capture_one_shape(bs, lambda b=bs: self.model_runner.forward(b))

    def capture_one_shape(
        self, size: int, forward: Callable[..., Any], stream_idx: int | None = None, variant_label: str | None = None
    ) -> None:
        self.attn_backend.init_forward_metadata_out_graph(size, in_capture=True)
        if self.in_graph_metadata_prep_done is None:
            self.in_graph_metadata_prep_done = "captured event"
        self.backend.capture_one(self._make_graph_key(size, stream_idx, variant_label), forward)


def clamp_position(seq_lens: Any) -> None:
    log.append(f"clamp {seq_lens}")


def modules(generation: str) -> dict[str, types.ModuleType]:
    """By name; every call makes classes of its own, so that hooks do not last."""
    found: dict[str, types.ModuleType] = {}

    def put(name: str, *things: Any) -> None:
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            path = ".".join(parts[:i])
            if path not in found:
                found[path] = types.ModuleType(path)
                found[path].__path__ = []
                if i > 1:
                    setattr(found[".".join(parts[: i - 1])], parts[i - 1], found[path])
        for thing in things:
            setattr(found[name], thing.__name__, thing)

    def fresh(kind: type) -> type:
        return type(kind.__name__, (kind,), {"__module__": kind.__module__})

    executor = "sglang.srt.model_executor"
    put(f"{executor}.model_runner", fresh(ModelRunner))
    put("sglang.srt.layers.logits_processor", LogitsProcessorOutput)
    put(f"{executor}.forward_batch_info", clamp_position)
    if generation == "classic":
        put(f"{executor}.cuda_graph_runner", fresh(CudaGraphRunner), freeze_gc)
    else:
        put(f"{executor}.runner.decode_cuda_graph_runner", fresh(DecodeCudaGraphRunner), freeze_gc)
        put(f"{executor}.runner.eager_runner", fresh(EagerRunner))
        put(f"{executor}.runner_backend.full_cuda_graph_backend", fresh(FullCudaGraphBackend))
        backend = found[f"{executor}.runner_backend.full_cuda_graph_backend"].FullCudaGraphBackend
        found[f"{executor}.runner.decode_cuda_graph_runner"].DecodeCudaGraphRunner.backend_class = backend
    return found


def put_around(target: str, hook: Callable[..., Any]) -> None:
    """What HookRegistry.apply_hooks does with an AROUND hook."""
    import functools
    import pkgutil

    path, name = target.rsplit(".", 1)
    owner = pkgutil.resolve_name(path)
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    setattr(owner, name, wrapper)
