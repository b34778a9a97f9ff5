"""Graphs of one process, restored and native, replayed in turns: clocks and neighbours are the same for both."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

# Replays between two events, and how often each graph has its turn.
INNER, ROUNDS = 10, 60


def in_turns(restored: Callable[[], None], native: Callable[[], None], *others: Callable[[], None]) -> dict[str, Any]:
    """Milliseconds of a replay, by events on the current stream: medians, their ratio, and how far native ones spread.

    others: more native graphs of the same, captured anew: how far two native ones differ, each with memory of its own.
    None may write what another reads otherwise than that does itself.
    """
    import torch

    graphs = {"restored": restored, "native": native} | {f"other {i}": other for i, other in enumerate(others)}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    torch.cuda.synchronize()
    for turn in range(-2, ROUNDS):  # the first ones bring clocks up, and count for nothing
        for name in graphs if turn % 2 else reversed(graphs):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(INNER):
                graphs[name]()
            end.record()
            end.synchronize()
            if turn >= 0:
                times[name].append(start.elapsed_time(end) / INNER)
    medians = [round(statistics.median(times[name]), 5) for name in list(graphs)[2:]]
    return {**compared(times["native"], times["restored"]), **({"others": medians} if medians else {})}


def compared(native: list[float], restored: list[float]) -> dict[str, float]:
    """Medians of milliseconds, their ratio, and between what 5 % and 95 % of the native ones lie."""
    base, other = statistics.median(native), statistics.median(restored)
    spread = statistics.quantiles(native, n=20, method="inclusive") if len(native) > 1 else [base]
    return {
        "native": round(base, 5),
        "restored": round(other, 5),
        "ratio": round(other / base, 5),
        "native_p5": round(spread[0], 5),
        "native_p95": round(spread[-1], 5),
    }


def as_good(row: Mapping[str, Any], tolerance: float = 0.005) -> bool:
    """Whether restored graphs are no slower than native ones, by more than the tolerance and than those spread."""
    return bool(row["restored"] <= max(row["native"] * (1 + tolerance), row["native_p95"], *row.get("others", ())))
