"""Faults that a run of vLLM is given: a plugin of vLLM's, loaded in each of its processes beside Foundry's.

FOUNDRY_TEST_REFUSED=4: SAVE cannot record graphs of 4 tokens.
FOUNDRY_TEST_TABLE=2: the model's forward of 2 tokens creates a device table that nobody registers, adds it to its result,
and every step rewrites it first with what the host knows of the step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

REFUSED, TABLE = "FOUNDRY_TEST_REFUSED", "FOUNDRY_TEST_TABLE"
RUNNERS = ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner")


def environment(folder: Path, **faults: int) -> dict[str, str]:
    """For a run: `refused` and `table` are numbers of tokens. The plugin's entry point is written to `folder`."""
    info = folder / "foundry_test_faults-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foundry-test-faults\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nfoundry_test_faults = vllm_faults:install\n")
    path = [str(folder), str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(part for part in path if part),
        **{f"FOUNDRY_TEST_{name.upper()}": str(number) for name, number in faults.items()},
    }


def install() -> None:
    """vLLM calls this. It may run more than once in a process."""
    if REFUSED in os.environ:
        _refuse(int(os.environ[REFUSED]))
    if TABLE in os.environ:
        _add_table(int(os.environ[TABLE]))


def _once(owner: Any, name: str, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    if not getattr(original, "is_fault", False):
        fault = made(original)
        fault.is_fault = True  # type: ignore[attr-defined]
        setattr(owner, name, fault)


def _refuse(tokens: int) -> None:
    from foundry import _core
    from foundry.errors import unsupported

    def made(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_graph(saver: Any, raw_graph: int, name: str) -> int:
            if f"/num_tokens={tokens}/" in name:
                raise unsupported("a test does not want this graph")
            index: int = original(saver, raw_graph, name)
            return index

        return add_graph

    _once(_core.Saver, "add_graph", made)


def _add_table(tokens: int) -> None:
    import importlib
    from functools import wraps

    import torch
    from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM

    tables: list[Any] = []

    def made_forward(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def forward(this: Any, *args: Any, **kwargs: Any) -> Any:
            hidden = original(this, *args, **kwargs)
            if hidden.shape[0] != tokens:
                return hidden
            if not tables:
                tables.append(torch.zeros(hidden.shape[1], dtype=hidden.dtype, device=hidden.device))
            return hidden + tables[0]

        return forward

    def made_step(number: Callable[..., int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def made(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def step(this: Any, *args: Any, **kwargs: Any) -> Any:
                with torch.inference_mode():
                    for table in tables:
                        ramp = torch.arange(table.numel(), dtype=torch.float32) % 7
                        table.copy_((ramp * 0.2 * number(*args, **kwargs)).to(table.dtype))
                return original(this, *args, **kwargs)

            return step

        return made

    _once(Qwen3ForCausalLM, "forward", made_forward)
    for name in RUNNERS:
        runner = importlib.import_module(name).GPUModelRunner
        _once(runner, "execute_model", made_step(_scheduled))
        _once(runner, "_dummy_run", made_step(_asked))


def _scheduled(scheduler_output: Any, *args: Any, **kwargs: Any) -> int:
    return int(scheduler_output.total_num_scheduled_tokens)


def _asked(num_tokens: int, *args: Any, **kwargs: Any) -> int:
    return num_tokens
