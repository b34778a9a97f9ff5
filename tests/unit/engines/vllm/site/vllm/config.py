from __future__ import annotations

import enum
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class CUDAGraphMode(enum.Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)
    FULL_AND_PIECEWISE = (FULL, PIECEWISE)

    def __bool__(self) -> bool:
        return self.name != "NONE"


class CompilationMode(enum.Enum):
    NONE = 0
    STOCK_TORCH_COMPILE = 1
    VLLM_COMPILE = 3


def _hf_config() -> Any:
    shape = {"hidden_size": 1024, "_name_or_path": "/models/here"}
    return SimpleNamespace(architectures=["MiniForCausalLM"], to_dict=lambda: dict(shape))


@dataclass
class ModelConfig:
    model: str = "/models/here"
    dtype: str = "bfloat16"
    quantization: str | None = None
    quantization_config: Any = None
    max_logprobs: int = 20
    max_model_len: int = 4096
    enforce_eager: bool = False
    is_multimodal_model: bool = False
    is_encoder_decoder: bool = False
    is_hybrid: bool = False
    enable_sleep_mode: bool = False
    enable_cumem_allocator: bool = False
    runner_type: str = "generate"
    seed: int = 0
    hf_config: Any = field(default_factory=_hf_config)


@dataclass
class _Hashed:
    salt: str = ""

    def compute_hash(self) -> str:
        return f"{type(self).__name__}/{self.salt}"


@dataclass
class CacheConfig(_Hashed):
    block_size: int = 16
    cache_dtype: str = "auto"
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    cpu_offload_gb: float = 0


@dataclass
class CompilationConfig(_Hashed):
    mode: CompilationMode = CompilationMode.NONE
    cudagraph_mode: CUDAGraphMode = CUDAGraphMode.FULL_DECODE_ONLY
    cudagraph_capture_sizes: list[int] = field(default_factory=lambda: [8, 16, 32])
    compile_sizes: list[int] = field(default_factory=list)
    use_inductor_graph_partition: bool = False
    static_forward_context: dict[str, Any] = field(default_factory=dict)


@dataclass
class ParallelConfig(_Hashed):
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    data_parallel_rank: int = 0
    data_parallel_rank_local: int | None = None
    data_parallel_index: int = 0
    prefill_context_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    is_moe_model: bool = False
    use_ubatching: bool = False
    worker_cls: str = "auto"


@dataclass
class SchedulerConfig(_Hashed):
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 32


@dataclass
class LoRAConfig(_Hashed):
    max_loras: int = 2
    max_lora_rank: int = 16


@dataclass
class AttentionConfig(_Hashed):
    backend: str | None = None
    flash_attn_version: int | None = None


@dataclass
class VllmConfig:
    model_config: ModelConfig = field(default_factory=ModelConfig)
    cache_config: CacheConfig = field(default_factory=CacheConfig)
    compilation_config: CompilationConfig = field(default_factory=CompilationConfig)
    parallel_config: ParallelConfig = field(default_factory=ParallelConfig)
    scheduler_config: SchedulerConfig = field(default_factory=SchedulerConfig)
    attention_config: AttentionConfig = field(default_factory=AttentionConfig)
    lora_config: LoRAConfig | None = None
    offload_config: Any = None
    speculative_config: Any = None
    kv_transfer_config: Any = None
    additional_config: dict[str, Any] = field(default_factory=dict)
    use_v2_model_runner: bool = False
