"""A stand-in for foundry._core: SAVE, archives on disk and LOAD as plain Python, on the process of fake_process.

Like the real core it materializes everything outside rebuilt zones, and refuses what it does not know.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
import types
from dataclasses import dataclass, field
from typing import Any

from fake_process import *  # noqa: F403
from fake_process import FoundryError, fail, in_zone, process, read_memory, run, write_memory, zone_open

import foundry


def install() -> types.ModuleType:
    module = sys.modules[__name__]
    sys.modules["foundry._core"] = module
    foundry.__dict__["_core"] = module
    foundry.__dict__.pop("FoundryError", None)
    return module


# ---- what was recorded

traced: list[tuple[str, str, int, int, int, int, int]] | None = None


def trace_enable(enabled: bool) -> None:
    global traced
    traced = [] if enabled else None


def trace_name_thread(name: str) -> None:
    pass


def trace_take() -> tuple[list[str], list[tuple[str, str, int, int, int, int, int]], int]:
    taken = list(traced or [])
    if traced is not None:
        traced.clear()
    return ["graphs 0"], taken, 0


# ---- SAVE


class Tensor:
    def __init__(
        self,
        name: str,
        dtype: str,
        item_bytes: int,
        address: int,
        sizes: Any,
        strides: Any,
        storage_address: int,
        storage_bytes: int,
        constant: bool = False,
        mutable: bool = False,
        output: bool = False,
        export: bool = False,
    ) -> None:
        self.name, self.dtype, self.item_bytes, self.address = name, dtype, item_bytes, address
        self.sizes, self.strides = list(sizes), list(strides)
        self.storage_address, self.storage_bytes = storage_address, storage_bytes
        self.constant, self.mutable, self.output, self.export = constant, mutable, output, export
        self.storage = -1
        self.anchor: int | None = None
        self.frozen = True

    def __setattr__(self, name: str, value: Any) -> None:
        # The real one is read-only for Python.
        if self.__dict__.get("frozen"):
            raise AttributeError(f"{name} cannot be set")
        super().__setattr__(name, value)

    def change(self, **values: Any) -> None:
        """What only the core may do."""
        self.__dict__.update(values)

    @property
    def nbytes(self) -> int:
        if 0 in self.sizes:
            return 0
        return (1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))) * self.item_bytes


@dataclass
class GraphSummary:
    index: int
    name: str
    nodes: int
    edges: int
    nodes_by_type: dict[str, int]


@dataclass
class SaveReport:
    graphs: list[GraphSummary]
    left_out: dict[str, list[str]]
    warnings: list[str]
    bytes_by_file: dict[str, int]
    mapped_bytes: int = 0
    content_bytes: int = 0
    stored_bytes: int = 0
    images: int = 1
    image_bytes: int = 1
    milliseconds: dict[str, float] = field(default_factory=dict)


class Staging:
    def __init__(self, archive: str) -> None:
        self.archive = archive
        self.path = f"{archive}.tmp-{os.getpid()}"
        try:
            os.mkdir(self.path)
        except OSError as problem:
            raise fail("io", f"cannot make the staging directory {self.path}: {problem.strerror}.") from None

    def write_text(self, name: str, text: str) -> None:
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def publish(self) -> list[str]:
        if os.path.exists(self.archive):
            shutil.rmtree(self.archive)
        os.rename(self.path, self.archive)
        return []

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class Saver:
    def __init__(self, device: int) -> None:
        self.graphs: list[dict[str, Any]] = []
        self.tensors: list[Tensor] = []
        self.outputs: dict[int, list[int]] = {}
        self.left_out: dict[str, list[str]] = {}
        self.kept: dict[int, bytes] = {}
        self.freed: tuple[int, bytes, bytes] | None = None  # address, content, pattern
        self.golden: dict[str, list[str]] = {}
        self.events: dict[str, int] = {}
        self.watched: dict[int, bytes] = {}
        self.changes: dict[int, tuple[bytes, bytes]] = {}  # address: content when it was watched, and at the end
        self.written: set[int] = set()
        self.exposed: list[int] = []
        self.refusals: dict[int, str] = {}
        self.taken: dict[int, bytes] = {}
        self.found: list[dict[int, bytes]] = []  # by graph: what they held when it was captured

    def name_event(self, event: int, name: str, flags: int) -> bool:
        used = any(node[:2] == ("record", event) for graph in self.graphs for node in graph["program"])
        if used:
            self.events[name] = event
        return used

    def add_graph(self, raw_graph: int, name: str) -> int:
        if name in process.unsupported:
            raise fail("unsupported", f"graph {name} has a host node between kernels a and b")
        self.graphs.append(
            {"name": name, "program": list(process.captured[raw_graph]), "outputs": '["none"]', "generator": [0, 0, 0]}
        )
        self.found.append(self.taken)
        return len(self.graphs) - 1

    @staticmethod
    def takes_capture_input(tensor: Tensor) -> bool:
        return tensor.mutable and "int" in tensor.dtype

    def take_capture_inputs(self, tensors: list[Tensor]) -> None:
        self.taken = {tensor.address: read_memory(tensor.address, tensor.nbytes) for tensor in tensors}

    def put_capture_inputs(self, graph: int) -> None:
        for address, data in self.found[graph].items():
            write_memory(address, data)

    def add_host_range(self, name: str, address: int, nbytes: int) -> None:
        if nbytes == 0:
            raise fail("invalid", f"host memory '{name}' is empty")
        process.host[name] = address, nbytes

    def set_generator(self, graph: int, increment: int, seed: int, offset: int) -> None:
        if process.lost_generator:
            raise fail("unsupported", "it draws random numbers, but its words cannot be told")
        words = {a for _, _, sources, _ in self.graphs[graph]["program"] for a in sources}
        found = []
        for value in (seed, offset):
            (word,) = [a for a in words if read_memory(a, 8) == value.to_bytes(8, "little")]
            found.append(word)
        self.graphs[graph]["generator"] = [increment, *found]

    def set_outputs(self, graph: int, tree: str, tensors: Any) -> None:
        self.graphs[graph]["outputs"] = tree
        self.outputs[graph] = list(tensors)

    def add_tensor(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def set_blocks(self, blocks: Any) -> None:
        self.blocks = list(blocks)

    def watch_inputs(self, blocks: Any, again: bool) -> None:
        for address, length, active in blocks:
            slot = in_zone(address)
            if active and slot is not None and process.zones[slot].kind in ("private", "ambient"):
                self.watched.setdefault(address, read_memory(address, length))

    def changed_inputs(self) -> list[int]:
        known = {t.address for t in self.tensors if t.output or t.export}
        for address, earlier in self.watched.items():
            now = read_memory(address, len(earlier))
            if now != earlier and address not in known:
                self.changes[address] = earlier, now
        return [i for i, _ in enumerate(self.graphs) if self._read(i)]

    def _read(self, graph: int) -> set[int]:
        words = {a for _, out, sources, _ in self.graphs[graph]["program"] for a in (out, *(sources or ()))}
        words -= set(self.graphs[graph]["generator"])
        return {a for a, (earlier, _) in self.changes.items() if any(a <= word < a + len(earlier) for word in words)}

    def put_inputs(self, earlier: bool) -> None:
        if not self.kept:
            self.keep_state()
        self.restore_state()
        for address, contents in self.changes.items():
            write_memory(address, contents[0 if earlier else 1])

    def output_fingerprint(self, graph: int) -> str:
        return self.fingerprint(graph)

    def note_writes(self, earlier: bool) -> None:
        for address, contents in self.changes.items():
            if read_memory(address, len(contents[0])) != contents[0 if earlier else 1]:
                self.written.add(address)

    def unwritten_inputs(self) -> list[int]:
        return [i for i, _ in enumerate(self.graphs) if self._read(i) - self.written]

    def settle_inputs(self, graph: int, refusal: str) -> None:
        self.refusals.setdefault(graph, refusal)

    def expose_inputs(self) -> list[int]:
        settled = {address for graph in self.refusals for address in self._read(graph)}
        self.exposed = sorted(set(self.changes) - self.written - settled)
        return [i for i, _ in enumerate(self.graphs) if self._read(i) & set(self.exposed)]

    def judge_inputs(self) -> None:
        for address in set(self.changes) - self.written:
            readers = [i for i, _ in enumerate(self.graphs) if address in self._read(i)]
            refusal = next((self.refusals[i] for i in readers if i in self.refusals), "")
            for i in readers if refusal else ():
                self.left_out[self.graphs[i]["name"]] = [f"it reads an input that is not registered ({refusal})"]

    def examine(self) -> list[tuple[int, str]]:
        return [(i, graph["name"]) for i, graph in enumerate(self.graphs) if graph["name"] in process.doubts]

    def settle(self, graph: int, refusal: str) -> None:
        if refusal:
            self.left_out[self.graphs[graph]["name"]] = [f"a word may be a pointer: {refusal}"]

    def keep_state(self) -> None:
        self.kept = {a: bytes(d) for a, d in process.memory.items() if in_zone(a) is not None}

    def restore_state(self) -> None:
        for address, data in self.kept.items():
            if self.freed is None or not address <= self.freed[0] < address + len(data):
                process.memory[address][:] = data

    def fingerprint(self, graph: int) -> str:
        parts = [read_memory(self.tensors[i].address, self.tensors[i].nbytes) for i in self.outputs[graph]]
        return hashlib.sha256(b"".join(parts)).hexdigest() if any(parts) else ""

    def expose(self, graph: int) -> None:
        address = process.doubts[self.graphs[graph]["name"]]
        self.freed = address, read_memory(address, 32), b""

    def poison(self, pattern: int) -> None:
        for address in self.exposed:
            write_memory(address, bytes([pattern + 1]) * len(self.changes[address][0]))
        if self.exposed:
            return
        assert self.freed is not None
        self.freed = *self.freed[:2], bytes([pattern + 1]) * 32
        write_memory(self.freed[0], self.freed[2])

    def untouched(self) -> bool:
        assert self.freed is not None
        return read_memory(self.freed[0], 32) == self.freed[2]

    def heal(self) -> None:
        self.exposed = []
        if self.freed is not None:
            write_memory(*self.freed[:2])
            self.freed = None

    def prepare_golden(self) -> None:
        self.restore_state()

    def observe_golden(self, graph: int, seed: int, offset: int) -> None:
        self.golden.setdefault(self.graphs[graph]["name"], []).append(self.fingerprint(graph))

    def write_golden(self, staging: Staging, rank: int) -> int:
        process.golden = self.golden
        self.restore_state()
        return 0

    def write(self, staging: Staging, rank: int, strict: bool, compact: bool) -> SaveReport:
        if strict and self.left_out:
            raise fail("unsupported", next(iter(self.left_out.values()))[0])
        if process.full_disk:
            raise fail("io", "no space left on device")
        process.compact = compact
        storages: dict[int, int] = {}
        anchors = {t.storage_address: i for i, t in reversed(list(enumerate(self.tensors))) if t.constant or t.mutable}
        for tensor in self.tensors:
            tensor.change(
                storage=storages.setdefault(tensor.storage_address, len(storages)),
                anchor=anchors.get(tensor.storage_address) if tensor.output or tensor.export else None,
            )
        zones, content = [], []
        for zone in process.zones.values():
            zones.append(
                {
                    "name": zone.name,
                    "kind": zone.kind,
                    "base": zone.base,
                    "size": zone.size,
                    "log": zone.log,
                    "used_end": zone.used_end,
                }
            )
            if zone.kind != "rebuilt":
                content += [[a, bytes(d).hex()] for a, d in process.memory.items() if in_zone(a) == zone.slot]
        document = {
            "graphs": self.graphs,
            "events": self.events,
            "tensors": [vars(t) for t in self.tensors],
            "zones": zones,
            "content": content,
        }
        staging.write_text("rank_0/all.json", json.dumps(document))
        summaries = [
            GraphSummary(i, g["name"], len(g["program"]), 0, {"kernel": len(g["program"])})
            for i, g in enumerate(self.graphs)
            if g["name"] not in self.left_out
        ]
        return SaveReport(summaries, self.left_out, [], {"rank_0/all.json": len(json.dumps(document))})


POISON_PATTERNS = 3


def describe_files(staging_path: str) -> list[tuple[str, int, str]]:
    found = []
    for name in sorted(f"rank_0/{leaf}" for leaf in os.listdir(os.path.join(staging_path, "rank_0"))):
        with open(os.path.join(staging_path, name), "rb") as file:
            data = file.read()
        found.append((name, len(data), hashlib.sha256(data).hexdigest()))
    return found


# ---- LOAD


@dataclass
class ArchiveGraph:
    index: int
    name: str
    nodes: int
    edges: int
    nodes_by_type: dict[str, int]
    outputs: str
    generator_increment: int
    program: list[Any]
    words: list[int]


@dataclass
class ArchiveZone:
    name: str
    kind: str
    base: int
    size: int
    used_end: int
    log: list[list[int]]
    allocations: int = 0
    allocated_bytes: int = 0
    mapped_bytes: int = 0
    content_bytes: int = 0


@dataclass
class ArchiveImage:
    hash: str = "00"
    bytes: int = 1
    format: str = "elf"
    source: str = "fake"


def read_text(archive: str, name: str) -> str:
    try:
        with open(os.path.join(archive, name)) as file:
            return file.read()
    except OSError as problem:
        raise fail("io", f"{archive}/{name} cannot be read: {problem.strerror}") from None


def archive_warnings(archive: str) -> list[str]:
    return []


class Archive:
    def __init__(self, path: str, rank: int, inventory: Any) -> None:
        found = [file for file in describe_files(path) if file[0] == "rank_0/all.json"]
        if found != [tuple(entry) for entry in inventory if entry[0] == "rank_0/all.json"]:
            raise fail("corrupt", f"{path}/rank_0/all.json is not the file that foundry.json lists")
        document = json.loads(read_text(path, "rank_0/all.json"))
        self.graphs = [
            ArchiveGraph(
                i,
                g["name"],
                len(g["program"]),
                0,
                {"kernel": len(g["program"])},
                g["outputs"],
                g["generator"][0],
                g["program"],
                g["generator"][1:],
            )
            for i, g in enumerate(document["graphs"])
        ]
        self.images = [ArchiveImage()]
        self.zones = [ArchiveZone(**zone) for zone in document["zones"]]
        self.tensors = []
        for record in document["tensors"]:
            storage, anchor, _ = record.pop("storage"), record.pop("anchor"), record.pop("frozen")
            tensor = Tensor(**record)
            tensor.change(storage=storage, anchor=anchor)
            self.tensors.append(tensor)
        self.content = document["content"]
        self.event_handles = document["events"]

    @property
    def events(self) -> dict[str, list[int]]:
        return {
            name: [g.index for g in self.graphs if ["record", handle] in [node[:2] for node in g.program]]
            for name, handle in self.event_handles.items()
        }

    def pointers(self) -> list[Any]:
        return []

    def verify_images(self) -> None:
        pass


@dataclass
class LoadStats:
    milliseconds: dict[str, float] = field(default_factory=dict)
    mapped_bytes: int = 1
    content_bytes: int = 1
    images: int = 1
    functions: int = 1
    nodes: int = 1
    exec_device_bytes: int = 2900
    exec_host_bytes: int = 7800
    execs: int = 1
    evicted: int = 0
    rebuilt: int = 0


@dataclass
class Event:
    handle: int


def buffer_span(memory: object) -> tuple[int, int]:
    try:
        view = memoryview(memory)  # type: ignore[arg-type]
    except TypeError:
        raise fail("invalid", f"a {type(memory).__name__} is no host memory in one piece") from None
    return id(memory), view.nbytes


class Loader:
    def __init__(self, archive: Archive, device: int) -> None:
        self.archive = archive
        self.mapped: list[int] = []
        self.closed = False
        process.open_loaders.append(self)

    def open_zones(self) -> dict[str, int]:
        slots = {}
        for zone in self.archive.zones:
            slot = slots[zone.name] = zone_open(0, zone.name, zone.kind, zone.base, zone.size)
            process.zones[slot].used_end = zone.used_end
            if zone.kind == "rebuilt":
                process.zones[slot].expected = [(a, n) for a, n in zone.log]
        return slots

    def map(self) -> None:
        for address, content in self.archive.content:
            process.memory[address] = bytearray.fromhex(content)
            self.mapped.append(address)

    def register_host(self, name: str, address: int, nbytes: int) -> None:
        assert not self.closed
        process.host[name] = address, nbytes

    def claim(self, address: int, nbytes: int) -> None:
        try:
            process.find(address, nbytes)
        except FoundryError:
            slot = in_zone(address)
            assert slot is not None
            zone = process.zones[slot]
            for base, size in list(zone.expected):
                if base <= address < base + size:
                    zone.expected.remove((base, size))
                    process.memory[base] = bytearray(size)
                    self.mapped.append(base)
                    return
            raise fail("invalid", f"{address:#x} was not recorded") from None

    def start(self, order: Any, *, exec_budget: int = 0) -> None:
        process.calls.append("start")
        process.exec_budget = exec_budget

    def wait_content(self) -> None:
        if process.bad_content:
            raise fail("corrupt", "rank_0/memory.fdry: section content: a unit does not decode")
        process.calls.append("wait_content")

    def settle(self) -> None:
        process.calls.append("settle")

    def cancel(self) -> None:
        process.calls.append("cancel")

    def wait(self, graph: int) -> None:
        assert not self.closed
        process.waited.add(graph)
        name = self.archive.graphs[graph].name
        if traced is not None:
            now = time.monotonic_ns()
            traced.append(("instantiate", name, 0, now, now + 1000, 0, self.archive.graphs[graph].nodes))
        if name in process.broken:
            raise fail("driver", f"graph {name} cannot be instantiated: CUDA_ERROR_INVALID_VALUE")

    def launch(self, graph: int, stream: int) -> None:
        assert not self.closed
        run(self.archive.graphs[graph].program)

    def launch_random(self, graph: int, stream: int, seed: int, offset: int) -> None:
        for word, value in zip(self.archive.graphs[graph].words, (seed, offset), strict=True):
            write_memory(word, value.to_bytes(8, "little"))
        self.launch(graph, stream)

    def event(self, name: str) -> Event:
        return Event(self.archive.event_handles[name])

    def pin(self) -> None:
        process.pins += 1

    def stats(self) -> LoadStats:
        return LoadStats()

    def close(self) -> None:
        self.closed = True
        for address in self.mapped:
            process.memory.pop(address, None)
        self.mapped.clear()
        if self in process.open_loaders:
            process.open_loaders.remove(self)
