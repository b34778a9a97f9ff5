"""Medians and spread of trials, as a table for people."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Median, least and most of every number that all runs have."""
    found = {}
    for key in runs[0]:
        values = [run[key] for run in runs if isinstance(run.get(key), (int, float))]
        if len(values) == len(runs):
            found[key] = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return found


def lines(title: str, rows: Mapping[str, Mapping[str, Mapping[str, float]]], keys: Sequence[str]) -> list[str]:
    """A row per trial, a column per number: median and, in brackets, the least and the most."""
    keys = [key for key in keys if any(key in row for row in rows.values())]
    table = [[title, *keys]]
    for name, row in rows.items():
        table.append([name, *(_cell(row[key]) if key in row else "" for key in keys)])
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def _cell(numbers: Mapping[str, float]) -> str:
    digits = 0 if abs(numbers["median"]) >= 1000 else 1
    median, least, most = (f"{numbers[name]:.{digits}f}" for name in ("median", "least", "most"))
    return median if least == most else f"{median} [{least}..{most}]"
