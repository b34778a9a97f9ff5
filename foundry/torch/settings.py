"""Settings of PyTorch that decide where its allocations land: read for the fingerprint, refused where zones cannot work."""

from __future__ import annotations

import os
from typing import Any

import torch

# The old and the new name of one variable.
_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_UNCACHED = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
_REQUIRED = (
    (torch.cuda, "MemPool"),
    (torch.cuda.CUDAGraph, "raw_cuda_graph"),
    (torch._C, "_cuda_beginAllocateToPool"),
    (torch._C, "_cuda_endAllocateToPool"),
    (torch._C, "_cuda_releasePool"),
    (torch._C, "_cuda_clearCublasWorkspaces"),
)
# Of the allocator's own account, what changes the sizes and places of segments and blocks.
_PLACING = ("expandable_segments", "max_split_size", "garbage_collection_threshold", "roundup_power2_divisions")


def problem() -> str | None:
    """Why this PyTorch, as configured, cannot put memory into zones; None if it can. A sentence."""
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device: install a CUDA build of it and check the driver with `foundry doctor`"
    if torch.version.cuda is None:
        return "PyTorch was not built for CUDA: Foundry works with NVIDIA GPUs only"
    missing = [name for place, name in _REQUIRED if not hasattr(place, name)]
    if missing:
        return f"PyTorch {torch.__version__} lacks {', '.join(missing)}: Foundry needs 2.8 or later"
    return _allocator_problem(backend(), configured(), _account())


def _allocator_problem(backend: str, settings: dict[str, str], account: dict[str, Any]) -> str | None:
    if backend == "cudaMallocAsync" or settings.get("backend", "native") == "cudaMallocAsync":
        return (
            "PyTorch allocates with cudaMallocAsync, whose addresses cannot be chosen: "
            "remove `backend:cudaMallocAsync` from PYTORCH_ALLOC_CONF"
        )
    if backend != "native":
        return (
            f"PyTorch's allocator was replaced ({backend}): Foundry needs the caching allocator, "
            "so do without torch.cuda.memory.change_current_allocator"
        )
    if settings.get("expandable_segments", "").lower() == "true" or account.get("expandable_segments"):
        return (
            "PyTorch's expandable segments do not go through memory pools: "
            "set `expandable_segments:False` in PYTORCH_ALLOC_CONF"
        )
    uncached = [name for name in _UNCACHED if os.environ.get(name, "0") not in ("", "0")]
    if uncached:
        return f"{uncached[0]} turns PyTorch's caching allocator off, and its memory pools with it: unset it"
    return None


def backend() -> str:
    """The active allocator: "native", "cudaMallocAsync", or what a pluggable one calls itself."""
    try:
        return str(torch.cuda.memory.get_allocator_backend())
    except (RuntimeError, AttributeError):
        return "native"


def configured() -> dict[str, str]:
    """The settings that the environment gives, by name."""
    found: dict[str, str] = {}
    for variable in _VARIABLES:
        for entry in _split(os.environ.get(variable, "")):
            name, _, value = entry.partition(":")
            if name.strip():
                found[name.strip()] = value.strip()
    return found


def _split(text: str) -> list[str]:
    """Entries separated by commas, those inside brackets kept together."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _account() -> dict[str, Any]:
    """What the allocator says of itself (settings can change after the start); {} where it says nothing."""
    try:
        settings = torch.cuda.memory._snapshot().get("allocator_settings", {})
    except (RuntimeError, AttributeError, TypeError):
        return {}
    return settings if isinstance(settings, dict) else {}


def fingerprint() -> dict[str, str | int]:
    """PyTorch's fields of the fingerprint."""
    settings: dict[str, Any] = {**configured(), "backend": backend()}
    account = _account()
    settings.update({name: account[name] for name in _PLACING if name in account})
    return {
        "framework_version": str(torch.__version__),
        "cuda_version": str(torch.version.cuda),
        "allocator_settings": ",".join(f"{name}:{settings[name]}" for name in sorted(settings)),
    }
