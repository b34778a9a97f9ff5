"""What a session did: restored, re-seated, captured natively, and why."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from foundry import tracing
from foundry.fingerprint import Mismatch, Value, mismatch_table
from foundry.text import count, size, some, table


@dataclass(frozen=True)
class Reseated:
    """A constant anchor tensor that was copied to where the graphs expect it."""

    name: str
    landed: int
    recorded: int
    nbytes: int


@dataclass(frozen=True)
class Verdict:
    """How a restored graph compares with its golden run.

    verdict: "equal", "within spread", "differs", "not comparable" (native replays differ without bounds), "not restored".
    """

    graph: str
    verdict: str
    detail: str


@dataclass
class Report:
    """The account of one session; str() is for people. Times are in milliseconds, sizes in bytes.

    outcome: "off" | "native" | "saving" | "saved" | "loading" | "restored" | "failed"; `reason` says why it is not
    what was asked for. `fell_back` has the reason for every graph that was captured natively on LOAD, `left_out` for
    every graph that SAVE could not write.
    """

    archive: str
    mode: str
    outcome: str
    reason: str = ""
    mismatches: list[Mismatch] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    native: list[str] = field(default_factory=list)
    fell_back: dict[str, str] = field(default_factory=dict)
    damaged: bool = False  # LOAD: a file of the archive was found damaged, or missing, while graphs were restored
    left_out: dict[str, list[str]] = field(default_factory=dict)
    saved: list[str] = field(default_factory=list)
    sharing: list[list[str]] = field(default_factory=list)  # SAVE: graphs whose outputs share memory with each other
    golden: list[str] = field(default_factory=list)  # SAVE: graphs with a golden run
    verdicts: list[Verdict] = field(default_factory=list)  # LOAD with verify
    unused: list[str] = field(default_factory=list)
    anchors_in_place: int = 0
    reseated: list[Reseated] = field(default_factory=list)
    divergence: str = ""  # the first allocation that differs from SAVE, where both sides kept a journal
    extra_anchors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # Engines: compiled kernels by the cache that they are of; SAVE: stored and bytes, LOAD: put, there, ready, refused.
    kernel_caches: dict[str, dict[str, object]] = field(default_factory=dict)
    notes: dict[str, Value] = field(default_factory=dict)  # what the program wants to know again on LOAD
    nodes: int = 0
    images: int = 0
    execs: int = 0  # LOAD: restored graphs that are instantiated now, and what they take (estimates by nodes)
    exec_device_bytes: int = 0
    exec_host_bytes: int = 0
    evicted: int = 0  # times that a graph lost its exec to the budget, and that one was built again
    rebuilt: int = 0
    mapped_bytes: int = 0
    content_bytes: int = 0
    stored_bytes: int = 0
    bytes_by_file: dict[str, int] = field(default_factory=dict)
    milliseconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Adds the time of a block to milliseconds[name]."""
        start = time.perf_counter()
        try:
            with tracing.span(name):
                yield
        finally:
            self.milliseconds[name] = self.milliseconds.get(name, 0.0) + (time.perf_counter() - start) * 1e3

    def write_verdicts(self, path: str) -> None:
        """For `foundry verify -- COMMAND`: what the session did and what golden runs showed, as JSON."""
        document = {
            "archive": os.path.abspath(self.archive) if self.archive else "",
            "outcome": self.outcome,
            "reason": self.reason,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "warnings": self.warnings,
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)

    def __str__(self) -> str:
        lines = [f"Foundry: {self._headline()}"]
        if self.mismatches:
            lines += ["", mismatch_table(self.mismatches)]
        lines += [f"  {sentence}" for sentence in self.differences]
        if self.reseated:
            rows = [(r.name, hex(r.landed), hex(r.recorded), size(r.nbytes)) for r in self.reseated]
            lines += ["", "re-seated:", table(("tensor", "landed at", "moved to", "size"), rows)]
        if self.divergence:
            lines.append(self.divergence)
        if self.outcome != "native":  # then the headline says it for all of them
            alike: dict[str, list[str]] = {}
            for name, reason in self.fell_back.items():
                # The graph is named in front of it: without its name the reason may be that of others, too.
                alike.setdefault(reason.removeprefix(f"graph {name}, "), []).append(name)
            lines += [f"captured natively: {some(names)}: {reason}" for reason, names in alike.items()]
        lines += [f"left out of the archive: {name}: {' '.join(why)}" for name, why in self.left_out.items()]
        lines += [
            f"outputs in the same memory, each replay overwrites the others': {some(names)}" for names in self.sharing
        ]
        lines += [f"golden run of {v.graph}: {v.verdict}{v.detail and f': {v.detail}'}" for v in self.verdicts]
        if self.extra_anchors:
            lines.append(f"registered here but not on SAVE: {some(self.extra_anchors)}")
        if self.unused:
            lines.append(f"in the archive but not asked for: {some(self.unused)}")
        lines += [f"note: {warning}" for warning in self.warnings]
        if self.milliseconds:
            lines.append("ms: " + ", ".join(f"{name} {value:.1f}" for name, value in self.milliseconds.items()))
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.outcome == "saved":
            what = f"saved {count(len(self.saved), 'graph')} ({self.nodes} nodes, {count(self.images, 'code image')}"
            return f"{what}, {size(sum(self.bytes_by_file.values()))}) to {self.archive}"
        if self.outcome == "restored":
            graphs = count(len(self.restored) + len(self.fell_back), "graph")
            restored = f"restored {f'{len(self.restored)} of ' if self.fell_back else ''}{graphs} from {self.archive}"
            placed = f"{count(self.anchors_in_place, 'tensor')} in place, {len(self.reseated)} re-seated"
            return f"{restored}; {placed}, {size(self.mapped_bytes)} mapped, {size(self.content_bytes)} of content"
        if self.outcome == "off":
            return "off"
        if self.outcome == "native":
            return f"graphs are captured natively: {self.reason}"
        if self.outcome == "failed":
            return f"failed: {self.reason}"
        return f"{self.outcome} {self.archive}"
