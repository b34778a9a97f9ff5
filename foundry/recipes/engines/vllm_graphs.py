"""Restored graphs against native ones of the same process: captured again by vLLM, then replayed in turns. Runs in the
worker of vLLM."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

ROUNDS, INNER = 30, 10


def compare(worker: Any, batches: tuple[int, ...] = (1, 8, 64, 256, 512)) -> list[dict[str, float]]:
    """One row per batch size that has a full graph of both kinds: median milliseconds of a replay, and their ratio."""
    runner = worker.model_runner
    restored = _full_graphs(runner)
    native = _captured_again(runner)
    rows = []
    for tokens in batches:
        if tokens in restored and tokens in native:
            rows.append({"batch": tokens, **_in_turns(restored[tokens].replay, native[tokens].replay)})
    return rows


def _table(runner: Any) -> dict[Any, Any]:
    """The runner's own table of full graphs."""
    manager = getattr(runner, "cudagraph_manager", None)
    table: dict[Any, Any] = manager.graphs if manager is not None else runner.model.concrete_cudagraph_entries
    return table


def _full_graphs(runner: Any) -> dict[int, Any]:
    return {key.num_tokens: getattr(found, "cudagraph", found) for key, found in _table(runner).items()}


def _captured_again(runner: Any) -> dict[int, Any]:
    """vLLM's own capture, with its table emptied meanwhile."""
    table = _table(runner)
    kept = dict(table)
    table.clear()
    manager = getattr(runner, "cudagraph_manager", None)
    try:
        if manager is not None:
            descriptors: dict[Any, list[Any]] = {}
            for key in sorted(kept, key=lambda key: -key.num_tokens):
                descriptors.setdefault(key.cg_mode, []).append(key)
            manager._capture_descs = descriptors
        runner.capture_model()
        return _full_graphs(runner)
    finally:
        table.clear()
        table.update(kept)


def _in_turns(restored: Callable[[], None], native: Callable[[], None]) -> dict[str, float]:
    import torch

    times: dict[str, list[float]] = {"restored": [], "native": []}
    pair = {"restored": restored, "native": native}
    for turn in range(ROUNDS):
        for name in ("restored", "native") if turn % 2 else ("native", "restored"):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(INNER):
                pair[name]()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) / INNER)
    medians = {name: round(statistics.median(values), 5) for name, values in times.items()}
    spread = [round(q, 5) for q in statistics.quantiles(times["native"], n=20)[::18]]
    return {
        **medians,
        "ratio": round(medians["restored"] / medians["native"], 5),
        "native_p5": spread[0],
        "native_p95": spread[-1],
    }
