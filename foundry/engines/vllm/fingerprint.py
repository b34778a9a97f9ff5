"""vLLM's fields of the fingerprint: all must be equal."""

from __future__ import annotations

import os
from typing import Any

# Variables that do not change what a graph computes or where memory lies. Prefixes.
_IRRELEVANT = (
    "VLLM_API_KEY",
    "VLLM_ASSETS",
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIG",
    "VLLM_DEBUG",
    "VLLM_DO_NOT_TRACK",
    "VLLM_DP_",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_ENGINE_",
    "VLLM_HOST_IP",
    "VLLM_HTTP",
    "VLLM_LOG",
    "VLLM_NO_USAGE",
    "VLLM_PLUGINS",
    "VLLM_PORT",
    "VLLM_RPC",
    "VLLM_SERVER",
    "VLLM_USAGE",
    "VLLM_WORKER_MULTIPROC",
)


def fields(config: Any, runner: str) -> dict[str, object]:
    """Readable fields first, then vLLM's own hash over what shapes the computation.

    Asked before weights are loaded, on SAVE and on LOAD at the same point: vLLM changes some of these later.
    """
    import vllm

    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    scheduler, compilation, attention = (
        config.scheduler_config,
        config.compilation_config,
        getattr(config, "attention_config", None),
    )
    return {
        "vllm": vllm.__version__,
        "vllm_runner": runner,
        "model_config": model.compute_hash(),
        "model_dtype": str(model.dtype),
        "quantization": str(model.quantization),
        "max_model_len": int(model.max_model_len),
        "max_num_seqs": int(scheduler.max_num_seqs),
        "max_num_batched_tokens": int(scheduler.max_num_batched_tokens),
        "cudagraph_mode": compilation.cudagraph_mode.name,
        "capture_sizes": ",".join(map(str, compilation.cudagraph_capture_sizes or [])),
        "compilation_mode": compilation.mode.name if compilation.mode is not None else "None",
        "attention_backend": str(getattr(attention, "backend", None) or os.environ.get("VLLM_ATTENTION_BACKEND")),
        "flash_attention": str(getattr(attention, "flash_attn_version", None)),
        "kv_cache_dtype": str(cache.cache_dtype),
        "kv_block_size": str(cache.block_size),
        "kv_cache_bytes": str(getattr(cache, "kv_cache_memory_bytes", None)),
        "kv_blocks_override": str(getattr(cache, "num_gpu_blocks_override", None)),
        "gpu_memory_utilization": float(cache.gpu_memory_utilization),
        "parallel_layout": f"tp{parallel.tensor_parallel_size}/pp{parallel.pipeline_parallel_size}"
        f"/dp{parallel.data_parallel_size}",
        "lora": _lora(config.lora_config),
        "vllm_environment": _environment(),
        "vllm_config": config.compute_hash(),
    }


def _lora(lora: Any) -> str:
    return "None" if lora is None else f"{lora.max_loras} of rank {lora.max_lora_rank}, {lora.compute_hash()}"


def _environment() -> str:
    names = sorted(name for name in os.environ if name.startswith("VLLM_") and not name.startswith(_IRRELEVANT))
    return " ".join(f"{name}={os.environ[name]}" for name in names)
