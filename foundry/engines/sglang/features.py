"""What the plugin does not do: served natively, with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

# Command line option, whether it is used, and why that matters (None: nothing to add).
_REFUSED: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("--tp-size", lambda a: _number(a, "tp_size") > 1, "communicator memory is not restored yet"),
    ("--pp-size", lambda a: _number(a, "pp_size") > 1, "outputs between stages are not restored yet"),
    ("--ep-size", lambda a: _number(a, "ep_size") > 1, "communicator memory is not restored yet"),
    ("--attn-cp-size", lambda a: _number(a, "attn_cp_size") > 1, "communicator memory is not restored yet"),
    ("--enable-dp-attention", lambda a: _flag(a, "enable_dp_attention"), "communicator memory is not restored yet"),
    (
        "--speculative-algorithm",
        lambda a: _flag(a, "speculative_algorithm"),
        "draft and verify graphs are not saved yet",
    ),
    (
        "--enable-lora",
        lambda a: _flag(a, "enable_lora") or _flag(a, "lora_paths"),
        "variants of LoRA are not saved yet",
    ),
    ("--dllm-algorithm", lambda a: _flag(a, "dllm_algorithm"), "graphs of diffusion models are not saved yet"),
    ("--enable-two-batch-overlap", lambda a: _flag(a, "enable_two_batch_overlap"), "its state is made while capturing"),
    ("--enable-pdmux", lambda a: _flag(a, "enable_pdmux"), "graphs of several streams are not saved yet"),
    ("--enable-hisparse", lambda a: _flag(a, "enable_hisparse"), "its buffers are unknown to the plugin"),
    ("--enable-memory-saver", lambda a: _flag(a, "enable_memory_saver"), "it replaces the allocator's memory"),
    ("--enable-symm-mem", lambda a: _flag(a, "enable_symm_mem"), "communicator memory is not restored yet"),
    ("--cpu-offload-gb", lambda a: _number(a, "cpu_offload_gb") > 0, "weights move between replays"),
    ("--offload-group-size", lambda a: _number(a, "offload_group_size") > 0, "weights move between replays"),
    ("--enable-eplb", lambda a: _flag(a, "enable_eplb"), "weights move between replays"),
    ("--elastic-ep-backend", lambda a: _flag(a, "elastic_ep_backend"), "weights move between replays"),
    (
        "--moe-a2a-backend",
        lambda a: _word(a, "moe_a2a_backend") not in ("", "none"),
        "its state is made while capturing",
    ),
    ("--kv-canary", lambda a: _word(a, "kv_canary") not in ("", "none"), "its buffers are unknown to the plugin"),
    ("--enable-return-routed-experts", lambda a: _flag(a, "enable_return_routed_experts"), "its buffers are unknown"),
    ("--enable-profile-cuda-graph", lambda a: _flag(a, "enable_profile_cuda_graph"), "there is no capture to profile"),
    ("--debug-cuda-graph", lambda a: _flag(a, "debug_cuda_graph"), "it replays without graphs"),
)


def _flag(arguments: Any, name: str) -> bool:
    return bool(getattr(arguments, name, None))


def _number(arguments: Any, name: str) -> float:
    value = getattr(arguments, name, None)
    return value if isinstance(value, (int, float)) else 0


def _word(arguments: Any, name: str) -> str:
    value = getattr(arguments, name, None)
    return str(getattr(value, "value", value) or "")


def obstacle(runner: Any) -> str:
    """Why this engine is served natively, a sentence; "" if it need not be. `runner` is the ModelRunner."""
    arguments = runner.server_args
    if str(runner.device) != "cuda":
        return f"the device is {runner.device}, not cuda"
    if _flag(arguments, "disable_cuda_graph") or _decode_backend(arguments) == "disabled":
        return "CUDA graphs are disabled: there is nothing to restore"
    backend = _decode_backend(arguments)
    if backend not in ("", "full") or os.environ.get("SGLANG_USE_BREAKABLE_CUDA_GRAPH", "").lower() in ("1", "true"):
        return f"graphs of decode are {backend or 'breakable'}: only full ones are restored"
    for option, used, reason in _REFUSED:
        if used(arguments):
            return f"{option} is used: {reason}"
    model = runner.model_config
    if not getattr(runner, "is_generation", True):
        return "the model does not generate: SGLang captures no graphs"
    if getattr(model, "is_encoder_decoder", False):
        return "encoder-decoder models are not supported yet"
    if getattr(runner, "is_hybrid_swa", False):
        return "models with sliding-window layers in a pool of their own are not supported yet"
    return ""


def hybrid(runner: Any) -> str:
    """The same for what is only known when the model is loaded."""
    if getattr(runner, "mambaish_config", None) is not None:
        return "models with state-space or linear-attention layers are not supported yet"
    return ""


def _decode_backend(arguments: Any) -> str:
    config = getattr(arguments, "cuda_graph_config", None)
    return _word(getattr(config, "decode", None), "backend").rsplit(".", 1)[-1].lower()
