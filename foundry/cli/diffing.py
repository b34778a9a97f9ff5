"""`foundry diff`: the allocations of an archive, and where those of a LOAD part from them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foundry import _core, archive_json, diff
from foundry.saving import RANK
from foundry.symbols import Resolver
from foundry.text import count, size

if TYPE_CHECKING:
    from foundry._core import Journal, JournalAllocation

OUTSIDE = "(outside zones)"


@dataclass
class Compared:
    """Both journals and what was found."""

    path: str
    load_path: str
    save: Journal
    load: Journal
    zones: list[diff.ZoneDiff]
    dependents: diff.Dependents


def open_archive(path: str) -> tuple[Journal, _core.Archive]:
    """The archive, verified, and its journal. Raises FoundryError."""
    manifest = archive_json.read(path)
    inventory = list(manifest.inventory)
    return _core.Journal.of_archive(path, RANK, inventory), _core.Archive(path, RANK, inventory)


def compare(path: str, load_path: str) -> Compared:
    """Raises FoundryError where one of both cannot be read."""
    path = os.path.normpath(path)
    save, archive = open_archive(path)
    load = _core.Journal.of_file(load_path)
    return Compared(path, load_path, save, load, diff.compare(save, load), diff.Dependents(archive))


# ---- without a LOAD


def summary(journal: Journal) -> list[dict[str, Any]]:
    """A journal's allocations by zone. Sizes in bytes."""
    zones: list[tuple[str, str, int | None]] = [(zone.name, zone.kind, i) for i, zone in enumerate(journal.zones)]
    rows = []
    for name, kind, index in [*zones, (OUTSIDE, "", None)]:
        allocations = journal.allocations(index)
        if not allocations and index is None:
            continue
        sizes = Counter(each.bytes for each in allocations)
        rows.append(
            {
                "zone": name,
                "kind": kind,
                "allocations": len(allocations),
                "bytes": sum(each.bytes for each in allocations),
                "freed": sum(each.freed for each in allocations),
                "largest": max(sizes, default=0),
                "sizes": [{"bytes": nbytes, "allocations": times} for nbytes, times in sizes.most_common(8)],
                "stacks": len({each.stack for each in allocations} - {0}),
            }
        )
    return rows


def show_summary(path: str, journal: Journal, console: Console) -> None:
    """The table for people."""
    console.print(f"{path}: {count(journal.events, 'event')} in its journal", highlight=False, soft_wrap=True)
    if journal.events == 0:
        console.print("SAVE ran with FOUNDRY_JOURNAL=off: there is nothing to compare.", highlight=False)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, head in enumerate(("zone", "kind", "allocations", "bytes", "freed", "largest", "stacks", "sizes")):
        table.add_column(head, justify="right" if 2 <= i <= 6 else "left", overflow="fold")
    for row in summary(journal):
        sizes = ", ".join(f"{each['allocations']} x {size(each['bytes'])}" for each in row["sizes"][:4])
        numbers = (row["allocations"], size(row["bytes"]), row["freed"], size(row["largest"]), row["stacks"])
        table.add_row(row["zone"], row["kind"], *map(str, numbers), sizes)
    console.print(table)


# ---- with one


def as_json(found: Compared, resolver: Resolver) -> dict[str, Any]:
    """The document of --json. Sizes in bytes, addresses as integers, frames innermost first."""
    return {
        "archive": found.path,
        "load_journal": found.load_path,
        "zones": [
            {
                "zone": zone.zone,
                "save": len(zone.save),
                "load": len(zone.load),
                "counts": dict(zone.counts()),
                "first": None if zone.first is None else _divergence(found, zone, zone.first, resolver),
            }
            for zone in found.zones
        ],
        "save": summary(found.save),
        "load": summary(found.load),
    }


def _divergence(found: Compared, zone: diff.ZoneDiff, one: diff.Divergence, resolver: Resolver) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": one.kind, "sentence": zone.sentence(one)}
    for name, journal, allocations, at, there in (
        ("save", found.save, zone.save, one.save_at, one.save is not None),
        ("load", found.load, zone.load, one.load_at, one.load is not None),
    ):
        # The side that made nothing here shows in full what it made instead.
        shown = _allocation(found, journal, allocations[at], at, resolver) if at < len(allocations) else None
        document[name] = shown if there else None
        document[f"{name}_before"] = _neighbour(allocations, at - 1)
        document[f"{name}_next"] = _neighbour(allocations, at + 1) if there else shown
    return document


def _neighbour(allocations: Sequence[JournalAllocation], position: int) -> dict[str, Any] | None:
    if not 0 <= position < len(allocations):
        return None
    each = allocations[position]
    return {"position": position, "ordinal": each.ordinal, "bytes": each.bytes, "address": each.address}


def _allocation(
    found: Compared, journal: Journal, each: JournalAllocation, position: int, resolver: Resolver
) -> dict[str, Any]:
    depends = found.dependents.of(each.address, each.bytes)
    stack = journal.stack(each.stack)
    return {
        "position": position,
        "ordinal": each.ordinal,
        "bytes": each.bytes,
        "address": each.address,
        "thread": each.thread,
        "stream": each.stream,
        "entry_point": each.entry_point,
        "graphs": list(depends.graphs),
        "tensors": list(depends.tensors),
        "python_frames": [{"function": f.function, "file": f.file, "line": f.line} for f in stack.python_frames],
        "frames": [
            {"module": f.module, "build_id": f.build_id, "offset": f.offset, "function": resolver.name(f)}
            for f in stack.frames[diff.own_frames(stack) :]
        ],
    }


def show(found: Compared, resolver: Resolver, frames: int, console: Console) -> None:
    """The text for people."""

    def line(text: str = "", style: str | None = None) -> None:
        console.print(escape(text), highlight=False, soft_wrap=True, style=style)

    table = Table(box=None, header_style="bold", pad_edge=False)
    kinds = ("extra", "missing", "size", "order")
    for i, head in enumerate(("rebuilt zone", "SAVE", "LOAD", *kinds)):
        table.add_column(head, justify="right" if i else "left")
    for zone in found.zones:
        numbers = (len(zone.save), len(zone.load), *(zone.counts().get(kind, 0) for kind in kinds))  # type: ignore[call-overload]
        table.add_row(zone.zone, *map(str, numbers))
    console.print(table)
    if not any(zone.first for zone in found.zones):
        line("No zone diverges: LOAD allocated the same sizes in the same order.")
    for zone in found.zones:
        if zone.first is None:
            continue
        document = _divergence(found, zone, zone.first, resolver)
        line()
        line(f"{zone.first.kind}: {document['sentence']}", "bold")
        for side in ("save", "load"):
            _show_side(document, side, frames, line)


def _show_side(document: dict[str, Any], side: str, frames: int, line: Any) -> None:
    name = side.upper()
    here, before, after = document[side], document[f"{side}_before"], document[f"{side}_next"]
    for label, each in ((f"{name} before", before), (name, here), (f"{name} next", after)):
        if each is None:
            if label == name:
                line(f"  {label}: nothing")
            continue
        line(f"  {label}: allocation {each['position']}, {size(each['bytes'])} at {each['address']:#x}")
        if "frames" not in each:
            continue
        line(f"    {diff.Dependence(tuple(each['graphs']), tuple(each['tensors']))}")
        if not each["frames"] and not each["python_frames"]:
            line("    no stack: it was recorded without FOUNDRY_JOURNAL=stacks")
        for frame in each["python_frames"][:frames]:
            line(f"    {frame['function']} ({frame['file']}:{frame['line']})")
        for frame in each["frames"][:frames]:
            where = f"{frame['module']}+{frame['offset']:#x}" if frame["module"] else "(code of no file)"
            line(f"    {where}{' ' + frame['function'] if frame['function'] else ''}")
        if len(each["frames"]) > frames:
            line(f"    and {count(len(each['frames']) - frames, 'more frame')} (--frames)")
