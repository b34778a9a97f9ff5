"""What one child process measures. Milliseconds and bytes; every function returns a flat dict of numbers."""

from __future__ import annotations

import time
from typing import Any

from benchmarks import library

Numbers = dict[str, Any]


class Laps:
    """Times of steps, one after another."""

    def __init__(self) -> None:
        self.numbers: Numbers = {}
        self._start = self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Notes the time since the last lap."""
        now = time.perf_counter()
        self.numbers[name] = (now - self._last) * 1e3
        self._last = now

    def since_start(self, name: str) -> None:
        """Notes the time since construction."""
        self.numbers[name] = (time.perf_counter() - self._start) * 1e3


def context() -> None:
    """The framework's context, as an engine has it before it loads anything."""
    import torch

    torch.cuda.init()
    torch.ones(8, device="cuda")
    torch.cuda.synchronize()


def resident_bytes() -> int:
    """Physical memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def record(trace: str | None, name: str) -> None:
    """Writes what the threads did, if asked to."""
    from foundry import tracing

    if trace:
        tracing.write(f"{trace}/{name}.json", *tracing.take())


def restore(archive: str, tuning: Numbers, trace: str | None, name: str) -> Numbers:
    """From nothing but a context to every graph instantiated, images and memory content included."""
    import torch

    from foundry import _core, archive_json, tracing

    context()
    tracing.enable(trace is not None)
    free, resident = torch.cuda.mem_get_info()[0], resident_bytes()
    laps = Laps()
    manifest = archive_json.read(archive)
    data = _core.Archive(archive, 0, list(manifest.inventory))
    graphs = [graph.index for graph in data.graphs if graph.name not in manifest.left_out]
    len(data.tensors)
    laps.lap("open")
    loader = _core.Loader(data, 0)
    _core.seal(False)
    loader.open_zones()
    laps.lap("zones")
    loader.map()
    laps.lap("map and content")
    loader.start(graphs, **tuning)
    loader.settle()
    laps.lap("start")
    loader.wait(graphs[0])
    laps.lap("wait for first")
    laps.since_start("first graph")
    for graph in graphs:
        loader.wait(graph)
    laps.lap("wait for rest")
    laps.since_start("all graphs")
    stats = loader.stats()
    numbers = laps.numbers
    numbers["device_bytes"] = free - torch.cuda.mem_get_info()[0]
    numbers["host_bytes"] = resident_bytes() - resident
    numbers["graphs"], numbers["nodes"] = len(graphs), stats.nodes
    numbers.update({f"thread {step}": value for step, value in stats.milliseconds.items()})
    record(trace, name)
    return numbers


def driver_loop(archive: str, options: Numbers) -> Numbers:
    """The driver's own time for the same nodes: first pass with empty pools, last pass with warm ones."""
    context()
    found = library.driver_loop(archive, **options)
    numbers = {key: value for key, value in found.items() if not isinstance(value, list)}
    for label, one in (("cold", found["passes"][0]), ("warm", found["passes"][-1])):
        numbers.update({f"{label} {key}": value for key, value in one.items()})
    return numbers


def snapshot(archive: str) -> Numbers:
    """Reading the graphs as SAVE does, and what each call to the driver takes of that for a kernel node."""
    context()
    found = library.snapshot(archive, image_threads=8)
    nanoseconds: dict[str, float] = found.pop("ns")
    calls = {f"ns {name}": value for name, value in nanoseconds.items()}
    return {**found, "ns a node": found["ms"] * 1e6 / found["nodes"], "ns calls": sum(calls.values()), **calls}


def scale(archive: str, options: Numbers) -> Numbers:
    """The Restorer and the driver loop on synthetic graphs."""
    context()
    found = library.restore(archive, **options)
    # The first one warmed the pools, so compare this one with others of its kind only.
    loop = library.driver_loop(archive, **{**options, "passes": 1})
    return {**found, "warm loop": loop["passes"][0]["wall"]}


def native(flags: list[str]) -> Numbers:
    """Warm-up, capture and instantiation as if Foundry were absent, and the first replay of every graph."""
    decode, _ = _engine(["--native", *flags], None)
    return {**decode.milliseconds, **first_replays(decode)}


def load(archive: str, flags: list[str], trace: str | None, name: str) -> Numbers:
    """The whole start of the program that restores, and the first replay of every graph."""
    from foundry import tracing

    tracing.enable(trace is not None)
    decode, session = _engine(["--load", "--archive", archive, *flags], archive)
    numbers = {**decode.milliseconds, **first_replays(decode)}
    numbers.update({f"report {step}": value for step, value in session.report.milliseconds.items()})
    numbers["restored"] = len(session.report.restored)
    record(trace, name)
    return numbers


def first_replays(decode: Any) -> Numbers:
    """The first launch of every graph: what instantiation left to it. `launch` is the host's time, `replay` all."""
    import torch

    numbers = {}
    for label in ("first", "second"):
        torch.cuda.synchronize()
        laps = Laps()
        for graph in decode.graphs.values():
            graph.replay()
        laps.since_start(f"{label} launch of all")
        torch.cuda.synchronize()
        laps.since_start(f"{label} replay of all")
        numbers.update(laps.numbers)
    return numbers


def replays(archive: str, flags: list[str], sizes: list[int], rounds: int, inner: int) -> Numbers:
    """Step times of restored graphs and of two native captures in turns, each size alone and all in alternation."""
    import statistics

    import torch

    from foundry.native import capture
    from foundry.torch import runtime

    decode, _ = _engine(["--load", "--archive", archive, *flags], archive)
    with torch.no_grad():
        kinds: dict[str, dict[int, Any]] = {"restored": {n: decode.graphs[n].replay for n in sizes}}
        keep = []
        for kind in ("native", "native again"):
            captured = {n: capture(runtime(), decode.step_of(n), 2) for n in sizes}
            keep.append(captured)
            kinds[kind] = {n: graph.replay for n, graph in captured.items()}
    numbers: Numbers = {}
    cases = {f"batch {n}": [n] for n in sizes} | {"alternating": sizes}
    names = list(kinds)
    for case, cycle in cases.items():
        times: dict[str, list[float]] = {kind: [] for kind in names}
        for turn in range(rounds):
            for kind in names[turn % len(names) :] + names[: turn % len(names)]:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                for _ in range(inner):
                    for n in cycle:
                        kinds[kind][n]()
                end.record()
                end.synchronize()
                times[kind].append(start.elapsed_time(end) / inner)
        middle = {kind: statistics.median(values) for kind, values in times.items()}
        quarters = statistics.quantiles(times["native"], n=4)
        numbers[case] = {
            "native": middle["native"],
            "restored": middle["restored"],
            "restored/native": middle["restored"] / middle["native"],
            "native again/native": middle["native again"] / middle["native"],
            "native spread": (quarters[2] - quarters[0]) / middle["native"],
        }
    return numbers


def _engine(flags: list[str], archive: str | None) -> tuple[Any, Any]:
    import torch

    import foundry
    from foundry.recipes import torch_decode

    context()
    decode = torch_decode.Decode(torch_decode.arguments(flags))
    fields = {"recipe": "torch_decode", **vars(decode.config), "sizes": decode.sizes}
    with torch.no_grad():
        session = foundry.session(archive, "load" if archive else "off", on_mismatch="fail", fingerprint=fields)
        decode.start(session)
    return decode, session
