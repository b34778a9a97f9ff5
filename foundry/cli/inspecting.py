"""`foundry inspect`: what an archive holds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from foundry import _core, archive_json, attachments
from foundry.engines.common import kernel_file
from foundry.fingerprint import RULES
from foundry.saving import RANK
from foundry.text import count, size, some


@dataclass
class Inspection:
    """An archive, verified."""

    path: str
    manifest: archive_json.Manifest
    archive: _core.Archive
    kernels: dict[str, kernel_file.StoredCache]
    warnings: list[str]

    @property
    def graphs(self) -> list[_core.ArchiveGraph]:
        """Graphs that LOAD restores; the file may hold snapshots of ones that were left out."""
        return [graph for graph in self.archive.graphs if graph.name not in self.manifest.left_out]


def open_archive(path: str) -> Inspection:
    """Reads and verifies everything, images included. Raises FoundryError."""
    path = os.path.normpath(path)
    manifest = archive_json.read(path)
    archive = _core.Archive(path, RANK, list(manifest.inventory))
    archive.verify_images()
    text = attachments.read(path, manifest.inventory, kernel_file.NAME, RANK)
    kernels = {} if text is None else kernel_file.loads(text, f"{path}/{attachments.path(kernel_file.NAME, RANK)}")
    return Inspection(path, manifest, archive, kernels, _core.archive_warnings(path))


def as_json(found: Inspection, pointers: bool) -> dict[str, Any]:
    """The document of --json. Sizes in bytes, addresses as integers."""
    archive, manifest = found.archive, found.manifest
    document: dict[str, Any] = {
        "archive": found.path,
        "format_version": manifest.format_version,
        "library_version": manifest.library_version,
        "bytes": sum(nbytes for _, nbytes, _ in manifest.inventory),
        "fingerprint": {
            name: {"value": value, "rule": manifest.fingerprint.rules[name]}
            for name, value in manifest.fingerprint.values.items()
        },
        "zones": [
            {
                name: getattr(zone, name)
                for name in (
                    "name",
                    "kind",
                    "base",
                    "size",
                    "used_end",
                    "allocations",
                    "allocated_bytes",
                    "mapped_bytes",
                    "content_bytes",
                )
            }
            for zone in archive.zones
        ],
        "graphs": [
            {"name": g.name, "nodes": g.nodes, "edges": g.edges, "nodes_by_type": dict(g.nodes_by_type)}
            for g in found.graphs
        ],
        "nodes_by_type": dict(_types(found.graphs)),
        "left_out": {name: list(why) for name, why in manifest.left_out.items()},
        "images": [{"hash": i.hash, "bytes": i.bytes, "format": i.format, "source": i.source} for i in archive.images],
        "kernel_caches": {
            name: {
                "version": cache.version,
                "bytes": cache.nbytes,
                "folders": {f.name: _names(f) for f in cache.folders},
            }
            for name, cache in found.kernels.items()
        },
        "anchors": [
            {
                "name": t.name,
                "dtype": t.dtype,
                "shape": list(t.sizes),
                "address": t.address,
                "bytes": t.nbytes,
                "mutable": t.mutable,
            }
            for t in archive.tensors
            if t.constant or t.mutable
        ],
        "exports": [
            {"name": t.name, "dtype": t.dtype, "shape": list(t.sizes), "address": t.address, "bytes": t.nbytes}
            for t in archive.tensors
            if t.export
        ],
        "files": [{"name": n, "bytes": b, "hash": h} for n, b, h in manifest.inventory],
        "warnings": found.warnings,
    }
    if pointers:
        document["pointers"] = [
            {
                name: getattr(p, name)
                for name in ("graph", "node", "kernel", "parameter", "offset", "value", "pointer_class", "target")
            }
            for p in archive.pointers()
        ]
    return document


def _names(folder: kernel_file.Folder) -> list[str]:
    return [file.name for file in folder.files]


def _types(graphs: Sequence[_core.ArchiveGraph]) -> Counter[str]:
    types: Counter[str] = Counter()
    for graph in graphs:
        types.update(graph.nodes_by_type)
    return types


def show(found: Inspection, pointers: bool, console: Console) -> None:
    """The tables for people."""
    archive, manifest = found.archive, found.manifest
    files = [nbytes for _, nbytes, _ in manifest.inventory]
    console.print(
        f"{found.path}: {count(len(found.graphs), 'graph')}, {count(len(archive.images), 'code image')}, "
        f"{size(sum(files))} in {count(len(files), 'file')}, format {manifest.format_version}, "
        f"saved by Foundry {manifest.library_version}",
        highlight=False,
        soft_wrap=True,
    )
    _zones(archive, console)
    _graphs(found.graphs, console)
    _images(archive, console)
    if found.kernels:
        _kernels(found.kernels, console)
    fields = _table("fingerprint", "value", "rule")
    for name, value in manifest.fingerprint.values.items():
        fields.add_row(name, str(value), RULES[manifest.fingerprint.rules[name]])
    console.print(fields)
    for name, why in manifest.left_out.items():
        console.print(f"left out: {name}: {' '.join(why)}", soft_wrap=True, markup=False)
    for warning in found.warnings:
        console.print(f"warning: {warning}", soft_wrap=True, markup=False)
    if pointers:
        _pointers(archive, console)


def _table(*head: str, right: int = 0) -> Table:
    """Columns, of which the last `right` are numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, name in enumerate(head):
        number = i >= len(head) - right
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=number)
    return table


def _zones(archive: _core.Archive, console: Console) -> None:
    table = _table("zone", "kind", "base", "allocations", "allocated", "materialized", "content", right=4)
    for zone in archive.zones:
        sizes = (zone.allocated_bytes, zone.mapped_bytes, zone.content_bytes)
        table.add_row(zone.name, zone.kind, hex(zone.base), str(zone.allocations), *map(size, sizes))
    console.print(table)


def _graphs(graphs: Sequence[_core.ArchiveGraph], console: Console) -> None:
    types = [name for name, _ in _types(graphs).most_common()]
    table = _table("graph", "nodes", "edges", *types, right=2 + len(types))
    for graph in graphs:
        by_type = [str(graph.nodes_by_type.get(name, 0)) for name in types]
        table.add_row(graph.name, str(graph.nodes), str(graph.edges), *by_type)
    totals = _types(graphs)
    nodes, edges = sum(g.nodes for g in graphs), sum(g.edges for g in graphs)
    table.add_row("(all)", str(nodes), str(edges), *(str(totals[name]) for name in types), style="bold")
    console.print(table)


def _images(archive: _core.Archive, console: Console) -> None:
    table = _table("images from", "format", "images", "size", right=2)
    groups: dict[tuple[str, str], list[int]] = {}
    for image in archive.images:
        groups.setdefault((image.source or "(unknown)", image.format), []).append(image.bytes)
    for (source, kind), sizes in sorted(groups.items(), key=lambda item: -sum(item[1])):
        table.add_row(source, kind, str(len(sizes)), size(sum(sizes)))
    console.print(table)


def _kernels(kernels: dict[str, kernel_file.StoredCache], console: Console) -> None:
    table = _table("compiled kernels of", "version", "of", "folders", "size", right=2)
    for name, cache in kernels.items():
        stems = Counter(sorted({file.split(".")[0] for folder in cache.folders for file in _names(folder)[-1:]}))
        table.add_row(name, cache.version, some(list(stems)), str(len(cache.folders)), size(cache.nbytes))
    console.print(table)


def _pointers(archive: _core.Archive, console: Console) -> None:
    table = _table("graph", "node", "kernel", "argument", "value", "class", "target")
    ends = {-1: "source", -2: "destination", -3: "access window"}
    for p in archive.pointers():
        where = f"{ends.get(p.parameter, p.parameter)}+{p.offset}"
        table.add_row(p.graph, str(p.node), p.kernel, where, hex(p.value), p.pointer_class, p.target)
    console.print(table)
