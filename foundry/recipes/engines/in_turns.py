"""Two graphs of one process, restored and native, replayed in turns: clocks and neighbours are the same for both."""

from __future__ import annotations

import statistics
from collections.abc import Callable

# Replays between two events, and how often each graph has its turn.
INNER, ROUNDS = 10, 60


def in_turns(restored: Callable[[], None], native: Callable[[], None]) -> dict[str, float]:
    """Milliseconds of a replay, by events on the current stream: medians, their ratio, and how far native ones spread.

    Neither may write what the other reads otherwise than it does itself.
    """
    import torch

    times: dict[str, list[float]] = {"restored": [], "native": []}
    pair = {"restored": restored, "native": native}
    torch.cuda.synchronize()
    for turn in range(-2, ROUNDS):  # the first ones bring clocks up, and count for nothing
        for name in ("restored", "native") if turn % 2 else ("native", "restored"):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(INNER):
                pair[name]()
            end.record()
            end.synchronize()
            if turn >= 0:
                times[name].append(start.elapsed_time(end) / INNER)
    return compared(times["native"], times["restored"])


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
    return row["restored"] <= max(row["native"] * (1 + tolerance), row["native_p95"])
