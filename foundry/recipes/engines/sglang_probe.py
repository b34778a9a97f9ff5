"""What happens in SGLang's scheduler process, written down for the recipes: seconds of the phases of its start, captures,
kernels compiled and for what, what Foundry did. A plugin of its own, beside Foundry's: a native engine is measured alike.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import pkgutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foundry.recipes.engines.account import account

FILE_VARIABLE = "FOUNDRY_PROBE_FILE"
_RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner"
# Of either generation of SGLang; what a release lacks is not measured.
_PHASES = (
    "init_torch_distributed",
    "load_model",
    "init_memory_pool",
    "alloc_memory_pool",
    "init_attention_backend",
    "init_attention_backends",
    "init_device_graphs",
    "init_cuda_graphs",
)

DECODE = "decode"

# What is going on: a phase, then "serving" when the last one is over, "decode" in steps of decode.
_where = "start"
runner: Any = None  # the ModelRunner of this process


def register() -> None:
    """The entry point. Does nothing without FOUNDRY_PROBE_FILE."""
    if not os.environ.get(FILE_VARIABLE):
        return
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for name in _PHASES:
        if hasattr(ModelRunner, name):
            # Before Foundry's hooks: these are outside of them.
            HookRegistry.register(f"{_RUNNER}.{name}", _timed(name), HookType.AROUND)
    for target, hook in _STEPS.items():
        if _exists(target):
            HookRegistry.register(target, hook, HookType.AROUND)
    _count_captures()
    _count_triton()
    _count_launchers()
    _count_builds()


def note(kind: str, **values: Any) -> None:
    """One line of the file."""
    with open(os.environ[FILE_VARIABLE], "a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, "pid": os.getpid(), "during": _where, **values}) + "\n")


def read(path: str) -> list[dict[str, Any]]:
    """The lines so far."""
    try:
        return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []


def _timed(name: str) -> Callable[..., Any]:
    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        global _where, runner
        import torch

        before, _where, runner = _where, name, args[0]
        begin = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            torch.cuda.synchronize()
            note("phase", name=name, seconds=time.perf_counter() - begin)
            _where = "serving" if name.endswith("_graphs") else before
            if _where == "serving":
                note("foundry", account=_account())

    return around


def _exists(target: str) -> bool:
    try:
        pkgutil.resolve_name(target)
    except (ImportError, AttributeError):
        return False
    return True


def _run(original: Callable[..., Any], scheduler: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    """A step of prefill or of decode: all that is launched for it."""
    if not batch.forward_mode.is_decode():
        return original(scheduler, batch, *args, **kwargs)
    return _prepare(original, scheduler, batch, *args, **kwargs)


def _prepare(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Around what is only done for decode."""
    global _where
    before, _where = _where, DECODE
    try:
        return original(*args, **kwargs)
    finally:
        _where = before


_STEPS = {
    "sglang.srt.managers.scheduler.Scheduler.run_batch": _run,
    "sglang.srt.managers.schedule_batch.ScheduleBatch.prepare_for_decode": _prepare,
}


def _account() -> dict[str, Any]:
    if os.environ.get("FOUNDRY_MODE", "off") in ("", "off"):
        return account(None)
    from foundry.engines.sglang import plugin

    return account(plugin.report())


def _count_captures() -> None:
    import torch

    original = torch.cuda.CUDAGraph.capture_end

    @functools.wraps(original)
    def capture_end(self: Any) -> None:
        original(self)
        note("capture")

    torch.cuda.CUDAGraph.capture_end = capture_end


def _count_triton() -> None:
    """Kernels that were not in Triton's cache: compiled from source."""
    from triton import knobs

    before = knobs.compilation.listener

    def listener(**about: Any) -> None:
        if not about["cache_hit"]:
            note("triton", name=str(about["metadata"].get("name", about["src"])))
        if before is not None:
            before(**about)

    knobs.compilation.listener = listener


def _count_launchers() -> None:
    """Triton's host code, one launcher for a signature, that was not in its cache: compiled by the C compiler."""
    from triton.runtime import build

    original = build._build

    @functools.wraps(original)
    def _build(name: str, *args: Any, **kwargs: Any) -> Any:
        note("launcher", name=name)
        return original(name, *args, **kwargs)

    build._build = _build


def _count_builds() -> None:
    """C++ and CUDA modules of SGLang that were not in the cache of tvm-ffi: compiled by nvcc."""
    try:
        extension: Any = importlib.import_module("tvm_ffi.cpp.extension")
    except ImportError:
        return
    original = extension.build_ninja

    @functools.wraps(original)
    def build_ninja(build_dir: str) -> None:
        begin = time.perf_counter()
        present = any(Path(build_dir).glob("*.so"))
        original(build_dir)
        if not present:
            note("module", name=Path(build_dir).name[:80], seconds=time.perf_counter() - begin)

    extension.build_ninja = build_ninja
