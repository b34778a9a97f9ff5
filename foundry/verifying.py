"""LOAD with verify: golden runs are replayed before anything else, and what came out is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foundry import _core, archive_json
from foundry.report import Verdict
from foundry.saving import RANK
from foundry.text import size

if TYPE_CHECKING:
    from foundry.runtime import Runtime

# From best to worst: a graph is as good as its worst output.
_ORDER = ("equal", "within spread", "not comparable", "differs")


def open_golden(
    loader: _core.Loader, archive: _core.Archive, inventory: Sequence[tuple[str, int, str]]
) -> _core.GoldenCheck | None:
    """The archive's golden runs, None if it has none. Raises FoundryError if they are damaged."""
    if not any(name == archive_json.GOLDEN for name, _, _ in inventory):
        return None
    return _core.GoldenCheck(loader, archive, RANK, inventory)


def check(
    golden: _core.GoldenCheck, archive: _core.Archive, loader: _core.Loader, runtime: Runtime
) -> tuple[list[Verdict], list[str]]:
    """Replays every golden run; returns verdicts and notes.

    Nothing may have been replayed yet. Memory is as before afterwards. Raises FoundryError if the device fails.
    """
    runtime.synchronize()
    lost = golden.begin()
    notes = [f"golden runs overwrote {size(lost)} of mutable tensors: they hold zeros"] if lost else []
    try:
        return [_check_run(golden, run, archive, loader, runtime) for run in golden.runs], notes
    finally:
        golden.end()


def _check_run(
    golden: _core.GoldenCheck,
    run: _core.GoldenRun,
    archive: _core.Archive,
    loader: _core.Loader,
    runtime: Runtime,
) -> Verdict:
    try:
        loader.wait(run.graph)
    except _core.FoundryError as problem:
        return Verdict(run.name, "not restored", str(problem))
    graph = next(graph for graph in archive.graphs if graph.index == run.graph)
    golden.prepare(run.index)
    if graph.generator_increment:
        loader.launch_random(run.graph, runtime.current_stream(), run.seed, run.offset)
    else:
        loader.launch(run.graph, runtime.current_stream())
    runtime.synchronize()
    outputs = golden.compare(run.index)
    worst = max((output.verdict for output in outputs), key=_ORDER.index, default="not comparable")
    return Verdict(run.name, worst, _detail(outputs, worst, run.replays))


def _detail(outputs: Sequence[_core.GoldenVerdict], worst: str, replays: int) -> str:
    if not outputs:
        return "it has no outputs"
    if worst == "equal":
        return ""
    sentences = []
    for number, output in enumerate(outputs):
        if output.verdict != worst:
            continue
        what = f"output {number} ({output.dtype}, {size(output.bytes)})"
        if worst == "not comparable":
            sentences.append(f"{what} differs between native replays without bounds, or is too large to be kept")
        elif output.spread:
            sentences.append(f"{what} by {output.difference:.3g}; {replays} native replays by {output.spread:.3g}")
        else:
            sentences.append(f"{what}, which {replays} native replays repeated bit for bit")
    return "; ".join(sentences)
