"""What must be equal for an archive to fit an SGLang engine: everything but what cannot matter to graphs."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

# Options that change nothing on the device, or nothing but the content of weights: by the beginning of their names.
_IGNORED = (
    "admin_api_key", "api_key", "base_gpu_id", "bucket_", "chat_template", "completion_template", "crash_dump",
    "checkpoint_engine", "custom_sigquit_handler", "custom_weight_loader", "decode_log_interval", "decrypted_",
    "delete_ckpt", "detokenizer", "dist_", "download_dir", "enable_cache_report", "enable_forward_pass_metrics",
    "enable_http2", "enable_metrics", "enable_mfu_metrics", "enable_request_time_stats", "enable_ssl", "enable_trace",
    "engine_info", "export_metrics", "fastapi", "file_storage", "forward_pass_metrics", "gc_", "generation_tokens",
    "gpu_id_step", "grammar_backend", "grpc", "hf_chat", "host", "incremental_streaming", "json_model_override",
    "kv_events", "load_balance", "load_format", "load_snapshot", "log_", "max_queued", "model_checksum",
    "model_loader_extra", "model_path", "modelexpress", "nccl_port", "nnodes", "node_rank", "numa", "otlp",
    "port", "preferred_sampling", "prompt_tokens", "random_seed", "reasoning_parser", "remote_instance", "revision",
    "sampling_defaults", "served_model", "show_time_cost", "skip_server_warmup", "sleep_on_idle", "soft_watchdog",
    "ssl_", "stat_loggers", "stream_", "tokenizer", "tool_", "trace_", "trust_remote_code", "uvicorn", "warmups",
    "watchdog", "weight_loader", "weight_version", "extra_metric_labels", "skip_tokenizer_init",
)  # fmt: skip
_IGNORED_ENVIRONMENT = (
    "SGLANG_RUN_ID",
    "SGLANG_HOST_IP",
    "SGLANG_PLUGINS",
    "SGLANG_LOG",
    "SGLANG_SKIP_",
    "SGLANG_DP_RANK",
)
_IGNORED_ENDS = ("_DIR", "_PATH", "_PORT", "_IP", "_TIMEOUT", "_LOG")
# Packages that kernels of graphs come from.
_PACKAGES = ("sglang", "sglang-kernel", "sgl-kernel", "flashinfer-python", "triton")


def fields(runner: Any) -> dict[str, object]:
    """Fields by name. `runner` is the ModelRunner; its model need not be loaded."""
    found: dict[str, object] = {f"version.{name}": version for name, version in _versions()}
    found["model"] = _model_hash(runner.model_config)
    found.update({f"option.{name}": _text(value) for name, value in _options(runner.server_args)})
    found.update({f"env.{name}": value for name, value in _environment(os.environ)})
    return found


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _model_hash(model: Any) -> str:
    """Of the model's shape, not of where it came from."""
    table = model.hf_config.to_dict()
    for name in ("_name_or_path", "transformers_version"):
        table.pop(name, None)
    table["sglang"] = [str(getattr(model, name, None)) for name in ("dtype", "quantization", "context_len")]
    return hashlib.sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _options(arguments: Any) -> Iterator[tuple[str, Any]]:
    """Options that were given or derived: those that have their default need no field."""
    if dataclasses.is_dataclass(arguments):
        defaults = {field.name: field.default for field in dataclasses.fields(arguments)}
    else:
        defaults = {name: getattr(type(arguments), name, None) for name in vars(arguments)}
    for name in sorted(defaults):
        value = getattr(arguments, name, None)
        if name.startswith(("_", *_IGNORED)) or value is None or _same(value, defaults[name]):
            continue
        yield name, value


def _same(value: Any, default: Any) -> bool:
    try:
        return bool(value == default)
    except Exception:  # whatever an option's type makes of a comparison
        return False


def _environment(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted(variables):
        if not name.startswith("SGLANG_") or name.startswith(_IGNORED_ENVIRONMENT) or name.endswith(_IGNORED_ENDS):
            continue
        yield name, variables[name]


def _text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (set, frozenset)):
        return json.dumps(sorted(map(_text, value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return json.dumps({field.name: _text(getattr(value, field.name)) for field in dataclasses.fields(value)})
    if isinstance(value, (list, tuple)):
        return json.dumps([_text(item) for item in value])
    if isinstance(value, dict):
        return json.dumps({str(key): _text(item) for key, item in value.items()}, sort_keys=True)
    if isinstance(value, (str, int, float)):
        return str(value)
    return type(value).__qualname__  # a repr may hold an address
