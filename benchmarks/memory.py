"""What a child process measures of memory: content against plain copies, and restoring behind weight loading."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.trials import Laps, Numbers, context, record, resident_bytes

MIB = 1 << 20


def content(archive: str) -> Numbers:
    """An archive's content from its file to device memory, and as many bytes from pinned memory in one plain copy."""
    import torch

    from foundry import _core, archive_json

    context()
    data = _core.Archive(archive, 0, list(archive_json.read(archive).inventory))
    loader = _core.Loader(data, 0)
    _core.seal(False)
    loader.open_zones()
    resident = resident_bytes()
    laps = Laps()
    loader.map()
    laps.lap("map")
    loader.wait_content()
    laps.lap("content")
    stats = loader.stats()
    numbers: Numbers = {**laps.numbers, "bytes": stats.content_bytes, "host_bytes": resident_bytes() - resident}
    size = int(stats.content_bytes)
    laps = Laps()
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    laps.lap("pinning")
    with (Path(archive) / "rank_0" / "memory.fdry").open("rb", buffering=0) as file:
        laps.lap("open")
        read = file.readinto(memoryview(pinned.numpy()))
        laps.lap("plain read")
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    for name in ("plain copy", "plain copy again"):
        laps.lap("between")
        device.copy_(pinned, non_blocking=True)
        torch.cuda.synchronize()
        laps.lap(name)
    numbers |= laps.numbers
    rates = {"content": numbers["content"], "read": numbers["plain read"], "copy": numbers["plain copy again"]}
    sizes = {"content": size, "read": read or 0, "copy": size}
    return numbers | {f"{name} GB/s": sizes[name] / ms / 1e6 for name, ms in rates.items()}


def copies(gibibytes: int = 12) -> Callable[[], None]:
    """Weights that come from pinned memory, in tensors of 64 MiB that are allocated on the way."""
    import torch

    size = 64 * MIB
    staging = [torch.zeros(size, dtype=torch.uint8).pin_memory() for _ in range(4)]

    def load() -> None:
        kept = []
        for i in range(gibibytes * 1024 * MIB // size):
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            kept[-1].copy_(staging[i % len(staging)], non_blocking=True)
        torch.cuda.synchronize()

    return load


def fills(count: int = 30_000) -> Callable[[], None]:
    """Weights that kernels make: many launches, little work."""
    import torch

    tensors = [torch.empty(MIB, dtype=torch.uint8, device="cuda") for _ in range(100)]
    for tensor in tensors[:2]:
        tensor.fill_(1)  # its kernel is loaded
    torch.cuda.synchronize()

    def load() -> None:
        for i in range(count):
            tensors[i % len(tensors)].fill_(i % 256)
        torch.cuda.synchronize()

    return load


WEIGHTS: dict[str, Callable[[], Callable[[], None]]] = {"copies": copies, "fills": fills}


def overlap(archive: str, weights: str | None, restores: bool, trace: str | None, name: str) -> Numbers:
    """A restore in the background and weight loading in the calling thread: both at once, or one of them."""
    from foundry import _core, archive_json, tracing

    context()
    load = WEIGHTS[weights]() if weights else None
    tracing.enable(trace is not None)
    numbers: Numbers = {}
    loader: Any = None
    graphs: list[int] = []
    if restores:
        manifest = archive_json.read(archive)
        data = _core.Archive(archive, 0, list(manifest.inventory))
        graphs = [graph.index for graph in data.graphs if graph.name not in manifest.left_out]
        loader = _core.Loader(data, 0)
        _core.seal(False)
        loader.open_zones()
        loader.map()
        loader.start(graphs)
        loader.settle()
    begin = time.perf_counter()
    if load:
        load()
        numbers["weights"] = (time.perf_counter() - begin) * 1e3
    for graph in graphs:
        loader.wait(graph)
    if restores:
        milliseconds = loader.stats().milliseconds
        numbers |= {"restore": milliseconds["restore"], "first graph": milliseconds["first ready"]}
    record(trace, name)
    return numbers
