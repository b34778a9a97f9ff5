"""Restored graphs of vLLM against native ones of the same process, captured again. Runs in its worker."""

from __future__ import annotations

from typing import Any

from foundry.recipes.engines.in_turns import in_turns


def compare(worker: Any, batches: tuple[int, ...] = (1, 8, 64, 256, 512)) -> list[dict[str, float]]:
    """One row per batch size that has a full graph of both kinds: median milliseconds of a replay, and their ratio."""
    runner = worker.model_runner
    restored = _full_graphs(runner)
    native = _captured_again(runner)
    rows = []
    for tokens in batches:
        if tokens in restored and tokens in native:
            rows.append({"batch": tokens, **in_turns(restored[tokens].replay, native[tokens].replay)})
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
