"""What SAVE costs against a native start, and how large archives are."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def archive(path: str) -> dict[str, int]:
    """Bytes of an archive by file, code images together, and in all."""
    found: dict[str, int] = {}
    for file in sorted(Path(path).rglob("*")):
        if file.is_file():
            parts = file.relative_to(path).parts
            name = parts[0] if parts[0] == "images" else "/".join(parts)
            found[name] = found.get(name, 0) + file.stat().st_size
    return {**found, "all": sum(found.values())}


def save(report: Mapping[str, Any], native: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """SAVE's start without writing, in native starts, and what a graph's snapshot takes.

    report: what torch_decode wrote of its SAVE. native: trials of the same start without Foundry.
    """
    steps = ("session", "engine", "graphs", "end")
    spent, of = report["milliseconds"], report["report"]["milliseconds"]
    whole = sum(spent[step] for step in steps)
    writing = of["write"] + of["publish"]
    start = statistics.median(sum(run[step] for step in steps) for run in native)
    return {
        "start ms": whole,
        "of that writing ms": writing,
        "native start ms": start,
        "start without writing / native": (whole - writing) / start,
        "snapshot ms a graph": of["write.snapshot"] / report["graphs"],
    }
