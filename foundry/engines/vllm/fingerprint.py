"""vLLM's fields of the fingerprint: all must be equal."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import os
from typing import Any

# Variables that do not change what a graph computes or where memory lies. Prefixes.
_IRRELEVANT = (
    "VLLM_ALLOW_INSECURE",
    "VLLM_ALLOW_LONG",
    "VLLM_ALLOW_RUNTIME_LORA",
    "VLLM_API_KEY",
    "VLLM_ASSETS",
    "VLLM_AUDIO_",
    "VLLM_CACHE_ROOT",
    "VLLM_CI_",
    "VLLM_CONFIG",
    "VLLM_DEBUG",
    "VLLM_DISABLE_LOG",
    "VLLM_DISABLE_REQUEST_ID",
    "VLLM_DO_NOT_TRACK",
    "VLLM_DP_",
    "VLLM_ENABLE_RESPONSES",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_ENFORCE_STRICT_TOOL",
    "VLLM_ENGINE_",
    "VLLM_EXECUTE_MODEL_TIMEOUT",
    "VLLM_GC_DEBUG",
    "VLLM_GPT_OSS",
    "VLLM_HOST_IP",
    "VLLM_HTTP",
    "VLLM_IMAGE_",
    "VLLM_KEEP_ALIVE",
    "VLLM_KV_EVENTS",
    "VLLM_LOG",
    "VLLM_LOOPBACK_IP",
    "VLLM_LORA_RESOLVER",
    "VLLM_MAX_AUDIO",
    "VLLM_MAX_N_SEQUENCES",
    "VLLM_MEDIA_",
    "VLLM_MODEL_REDIRECT",
    "VLLM_MQ_",
    "VLLM_MSGPACK",
    "VLLM_NO_USAGE",
    "VLLM_OBJECT_STORAGE",
    "VLLM_PLUGINS",
    "VLLM_PORT",
    "VLLM_PROCESS_NAME",
    "VLLM_RAY_",
    "VLLM_REGEX",
    "VLLM_RINGBUFFER",
    "VLLM_RPC",
    "VLLM_SERVER",
    "VLLM_SKIP_MODEL_NAME",
    "VLLM_SYSTEM_START",
    "VLLM_TOOL_",
    "VLLM_TRACE_FUNCTION",
    "VLLM_USAGE",
    "VLLM_USE_MODELSCOPE",
    "VLLM_V1_OUTPUT_PROC",
    "VLLM_VIDEO_",
    "VLLM_WORKER_",
    "VLLM_XGRAMMAR",
)

# What a model configuration says about places and texts, not about computation. The path: the same model may be
# mounted elsewhere on the next machine.
_NOT_COMPUTED = frozenset(
    [
        "allowed_local_media_path",
        "allowed_media_domains",
        "config_format",
        "hf_config",
        "hf_config_path",
        "hf_text_config",
        "hf_token",
        "io_processor_plugin",
        "logprobs_mode",
        "max_logprobs",
        "model",
        "model_weights",
        "renderer_num_workers",
        "revision",
        "code_revision",
        "seed",
        "served_model_name",
        "skip_tokenizer_init",
        "tokenizer",
        "tokenizer_mode",
        "tokenizer_revision",
        "trust_remote_code",
    ]
)
# Parts of vLLM's configuration that shape graphs or memory, by attribute; each has a compute_hash of its own.
_PARTS = [
    "cache_config",
    "parallel_config",
    "scheduler_config",
    "device_config",
    "offload_config",
    "attention_config",
    "lora_config",
    "compilation_config",
    "kernel_config",
    "mamba_config",
    "kv_transfer_config",
]


def fields(config: Any, runner: str) -> dict[str, object]:
    """Readable fields first, then hashes over everything else that shapes computation or memory.

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
        "model": _architectures(model),
        "model_config": _model_hash(model),
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
        "vllm_config": _parts_hash(config),
    }


def _architectures(model: Any) -> str:
    return ",".join(getattr(model.hf_config, "architectures", None) or ["unknown"])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_stable).encode()).hexdigest()[:16]


def _stable(value: Any) -> object:
    """What JSON cannot write, as what is the same in every process."""
    if hasattr(value, "compute_hash"):
        return value.compute_hash()
    if isinstance(value, (set, frozenset)):
        return sorted(str(_stable(item)) for item in value)
    text = str(value)
    return type(value).__qualname__ if " at 0x" in text else text  # an address


def _model_hash(model: Any) -> str:
    """The model's own configuration file and vLLM's settings for it, wherever they lie."""
    shape = model.hf_config.to_dict()
    shape = {name: value for name, value in shape.items() if name not in ("_name_or_path", "transformers_version")}
    settings = {}
    for field in dataclasses.fields(model):
        value = getattr(model, field.name, None)
        if field.name not in _NOT_COMPUTED and isinstance(value, (str, int, float, enum.Enum, type(None))):
            settings[field.name] = str(value)
    # Of weights that are quantized as they are loaded; the model's configuration file does not know it.
    return _digest([shape, settings, getattr(model, "quantization_config", None)])


def _parts_hash(config: Any) -> str:
    parts: dict[str, Any] = {name: getattr(config, name, None) for name in _PARTS}
    hashes = {name: part.compute_hash() for name, part in parts.items() if hasattr(part, "compute_hash")}
    return _digest([hashes, getattr(config, "additional_config", None)])


def _lora(lora: Any) -> str:
    return "None" if lora is None else f"{lora.max_loras} of rank {lora.max_lora_rank}, {lora.compute_hash()}"


def _environment() -> str:
    """Variables of vLLM's own: Kubernetes names those of a service `vllm-x` VLLM_X_SERVICE_HOST and the like."""
    import vllm.envs

    known = getattr(vllm.envs, "environment_variables", os.environ)
    names = sorted(name for name in known if name.startswith("VLLM_") and not name.startswith(_IRRELEVANT))
    names = [name for name in names if name in os.environ]
    return " ".join(f"{name}={os.environ[name]}" for name in names)
