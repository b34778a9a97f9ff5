"""`foundry trace`: the picture of a start, from a recording or by restoring an archive here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foundry import archive_json, trace_page, tracing
from foundry.saving import RANK

# Nodes with addresses that must be mapped when they are added, or that may hold such nodes.
_ADDRESSED = frozenset(["memcpy", "memset", "child graph"])


def events_of(source: str, device: int) -> list[tracing.Event]:
    """Events of the recording `source`, or of restoring the archive `source` on that device.

    Raises ValueError (no recording), OSError (cannot be read) or FoundryError (cannot be restored).
    """
    return restore(source, device) if Path(source).is_dir() else tracing.read(source)


def restore(archive: str, device: int) -> list[tracing.Event]:
    """Restores an archive as a program's start does, but without a program: graphs with copies or fills are left out,
    because the driver checks the addresses in them."""
    from foundry import _core

    tracing.enable(True)
    try:
        with tracing.span("restore", archive):
            with tracing.span("open"):
                manifest = archive_json.read(archive)
                data = _core.Archive(archive, RANK, list(manifest.inventory))
                graphs = [
                    graph.index
                    for graph in data.graphs
                    if graph.name not in manifest.left_out and _ADDRESSED.isdisjoint(graph.nodes_by_type)
                ]
            loader = _core.Loader(data, device)
            try:
                _core.seal(False)
                with tracing.span("zones"):
                    loader.open_zones()
                loader.map()
                loader.start(graphs)
                with tracing.span("wait for graphs"):
                    for graph in graphs:
                        loader.wait(graph)
            finally:
                with tracing.span("close"):
                    loader.close()
                _core.seal(True)
        return tracing.take()[0]
    finally:
        tracing.enable(False)


def write(output: str, title: str, events: Sequence[tracing.Event]) -> None:
    """HTML, or Chrome-trace JSON where the file's name ends in .json. Raises OSError."""
    if output.endswith(".json"):
        tracing.write(output, events)
    else:
        Path(output).write_text(trace_page.page(title, events), encoding="utf-8")
