"""Restored graphs of vLLM against native ones of the same process, captured again. Runs in its worker."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from foundry.recipes.engines.in_turns import in_turns

# How often a size is captured natively: where a capture's memory lies makes a difference.
NATIVE = 4


def compare(worker: Any, batches: tuple[int, ...] = (1, 8, 64, 256, 512)) -> list[dict[str, Any]]:
    """One row per batch size that has a full graph: median milliseconds of a replay, and their ratio.

    All are replayed with the inputs of the capture just before: a graph must not run with those of another size. What
    schedules attention (FlashAttention 3's metadata) is laid out for one batch size, and read by every graph.
    """
    runner = worker.model_runner
    keys = {key.num_tokens: key for key in _table(runner)}
    rows = []
    for tokens in batches:
        if tokens in keys:
            key = keys[tokens]
            graphs = [_graph(_table(runner)[key]), *(_captured_again(runner, key) for _ in range(NATIVE))]
            rows.append({"batch": tokens, **in_turns(*(graph.replay for graph in graphs))})
    return rows


def _table(runner: Any) -> dict[Any, Any]:
    """The runner's own table of full graphs."""
    manager = getattr(runner, "cudagraph_manager", None)
    table: dict[Any, Any] = manager.graphs if manager is not None else runner.model.concrete_cudagraph_entries
    return table


def _graph(entry: Any) -> Any:
    return getattr(entry, "cudagraph", entry)


def _captured_again(runner: Any, key: Any) -> Any:
    """vLLM's own capture of one size, with its table emptied meanwhile."""
    table = _table(runner)
    kept = dict(table)
    table.clear()
    manager = getattr(runner, "cudagraph_manager", None)
    try:
        if manager is not None:
            manager._capture_descs = {key.cg_mode: [key]}
            runner.capture_model()
        else:
            wanted = [(runner.model.runtime_mode, [key])]
            with patch.object(runner.cudagraph_dispatcher, "get_capture_descs", lambda: wanted):
                runner.capture_model()
        return _graph(table[key])
    finally:
        table.clear()
        table.update(kept)
