"""Restored graphs of SGLang against native ones of the same process, captured again. Runs in its scheduler.

SGLang calls these functions as it calls loaders of weights: with the model and tensors, between two batches.
"""

from __future__ import annotations

import importlib
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from foundry.recipes.engines import random_model, sglang_probe
from foundry.recipes.engines.in_turns import in_turns

KINDS = ("native", "restored")

_kept: dict[str, list[Any]] = {}  # by kind: what the places hold


def loader(function: Any) -> str:
    """The name by which SGLang finds one of them."""
    return f"{__name__}.{function.__name__}"


def refill(model: Any, _tensors: Any) -> None:
    """Weights as a trained model's would be."""
    random_model.refill(model)


def capture_again(_model: Any, _tensors: Any) -> None:
    """SGLang's own captures, beside the restored graphs, which are in use again afterwards."""
    import torch

    runner = _graph_runner()
    places = _places(runner)
    _kept["restored"] = [getattr(owner, name) for owner, name in places]
    for owner, name in places:
        setattr(owner, name, {} if isinstance(getattr(owner, name), dict) else None)
    torch.cuda.synchronize()
    try:
        with _capture_mode(runner):
            runner.capture()
        torch.cuda.synchronize()
        _kept["native"] = [getattr(owner, name) for owner, name in places]
    finally:
        use_restored(None, None)


def use_native(_model: Any, _tensors: Any) -> None:
    """From now on steps replay native graphs."""
    _use("native")


def use_restored(_model: Any, _tensors: Any) -> None:
    """From now on steps replay restored graphs."""
    _use("restored")


def replay_in_turns(_model: Any, _tensors: Any) -> None:
    """Both graphs of a size, with the inputs of the steps before: writes down milliseconds. See `ask_for`."""
    import torch

    batch = int(_asked().read_text())
    pair = {kind: _graph(_kept[kind][0], batch) for kind in KINDS}
    with torch.cuda.stream(torch.cuda.Stream()):
        row = in_turns(pair["restored"].replay, pair["native"].replay)
    sglang_probe.note("replays", row={"batch": batch, **row})


def ask_for(batch: int) -> None:
    """In the recipe's process: the batch size that `replay_in_turns` is to take; SGLang's calls have no arguments."""
    _asked().write_text(str(batch))


def _asked() -> Path:
    return Path(os.environ[sglang_probe.FILE_VARIABLE] + ".batch")


def _use(kind: str) -> None:
    import torch

    torch.cuda.synchronize()
    for (owner, name), value in zip(_places(_graph_runner()), _kept[kind], strict=True):
        setattr(owner, name, value)


def _graph_runner() -> Any:
    """What captures decode graphs, in either generation of SGLang."""
    runner = sglang_probe.runner
    return getattr(runner, "decode_cuda_graph_runner", None) or runner.graph_runner


def _places(runner: Any) -> list[tuple[Any, str]]:
    """Attributes that hold graphs, outputs, and the event inside graphs where there is one."""
    backend = getattr(runner, "backend", None)
    if backend is None:
        return [(runner, "graphs"), (runner, "output_buffers")]
    event = "in_graph_metadata_prep_done"
    return [(backend, "_graphs"), (backend, "_outputs"), *([(runner, event)] if hasattr(runner, event) else [])]


def _graph(graphs: dict[Any, Any], batch: int) -> Any:
    """The smallest that the batch fits into."""
    sizes = {int(getattr(key, "size", key)): graph for key, graph in graphs.items()}
    return sizes[min(size for size in sizes if size >= batch)]


def _capture_mode(runner: Any) -> Any:
    """What SGLang holds around its first captures."""
    module = importlib.import_module(type(runner).__module__)
    mode = getattr(module, "model_capture_mode", None)
    return mode() if mode is not None else nullcontext()
