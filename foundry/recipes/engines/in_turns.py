"""Graphs of one process, restored and native, replayed in turns: clocks and neighbours are the same for both."""

from __future__ import annotations

import statistics
from collections.abc import Callable

# Replays between two events, and how often each graph has its turn.
INNER, ROUNDS = 10, 60


def in_turns(
    restored: Callable[[], None], native: Callable[[], None], again: Callable[[], None] | None = None
) -> dict[str, float]:
    """Milliseconds of a replay, by events on the current stream: medians, their ratio, and how far native ones spread.

    again: another native graph of the same, captured anew: how far two native ones differ.
    None may write what another reads otherwise than that does itself.
    """
    import torch

    graphs = {"restored": restored, "native": native} | ({"again": again} if again is not None else {})
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
    row = compared(times["native"], times["restored"])
    return row if again is None else {**row, "again": round(statistics.median(times["again"]), 5)}


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


def as_good(row: dict[str, float], tolerance: float = 0.005) -> bool:
    """Whether restored graphs are no slower than native ones, by more than the tolerance and than those spread."""
    return row["restored"] <= max(row["native"] * (1 + tolerance), row["native_p95"], row.get("again", 0.0))
