"""The process that the stand-in for foundry._core pretends to be in: device, zones and memory as Python objects.

Like the real core it places allocations of rebuilt zones by recorded size.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any

VERSION = "0.0-fake"
FORMAT_VERSION = 1
MAX_ZONES = 16
ZONE_BASE = 0x1000_0000_0000
ZONE_SIZE = 1 << 42
PLAIN_BASE = 0x7000_0000_0000


class FoundryError(Exception):
    kind = "invalid"
    code = 0


def fail(kind: str, sentence: str) -> FoundryError:
    problem = FoundryError(sentence)
    problem.kind = kind
    return problem


@dataclass
class Owner:
    name: str
    build: str = "fake"
    sm_target: int = 90


@dataclass
class DeviceInfo:
    ordinal: int = 0
    name: str = "Fake GPU"
    major: int = 9
    minor: int = 0
    sm_count: int = 132
    total_memory: int = 1 << 30
    driver_version: int = 13000
    uuid: str = "fake"


@dataclass
class Zone:
    slot: int
    name: str
    kind: str
    base: int
    size: int
    used_end: int
    expected: list[tuple[int, int]] = field(default_factory=list)
    log: list[tuple[int, int]] = field(default_factory=list)


class Process:
    """State of the process that the fake pretends to be in."""

    def __init__(self, hook: bool = False, driver: str | None = None, **device: Any) -> None:
        self.owner = Owner("hook" if hook else "core", sm_target=90 if hook else 0)
        self.driver = driver
        self.device = DeviceInfo(**device)
        self.zones: dict[int, Zone] = {}
        self.memory: dict[int, bytearray] = {}
        self.plain_end = PLAIN_BASE
        self.ambient: int | None = None
        self.sealed = False
        self.captured: dict[int, list[Any]] = {}  # CUgraph -> program
        self.host: dict[str, tuple[int, int]] = {}  # registered host memory
        self.unsupported: set[str] = set()
        self.broken: set[str] = set()  # graphs whose restore fails
        self.bad_content = False  # of materialized memory
        self.out_of_memory_in: set[int] = set()
        self.full_disk = False
        self.lost_generator = False
        self.doubts: dict[str, int] = {}  # graphs that SAVE has doubts about -> freed memory
        self.exec_budget = 0
        self.compact = False  # what the last SAVE was asked for
        self.golden: dict[str, list[str]] = {}  # graph -> outputs of its golden replays
        self.open_loaders: list[Any] = []
        self.waited: set[int] = set()  # graphs of the archive that were waited for
        self.events: list[int] = []  # that were recorded, in order
        self.quarantined: list[int] = []
        self.pins = 0
        self.calls: list[str] = []

    def find(self, address: int, nbytes: int) -> tuple[bytearray, int]:
        for base, data in self.memory.items():
            if base <= address and address + nbytes <= base + len(data):
                return data, address - base
        raise fail("driver", f"illegal address {address:#x}+{nbytes}")

    def plain_alloc(self, nbytes: int) -> int:
        if self.ambient is not None and not self.sealed:
            return zone_alloc(self.ambient, nbytes)
        address = self.plain_end
        self.plain_end += nbytes + 4096
        self.memory[address] = bytearray(nbytes)
        return address

    def plain_free(self, address: int) -> None:
        del self.memory[address]


process = Process()


def new_process(hook: bool = False, **options: Any) -> Process:
    """Forgets everything but the disk, as a new process does."""
    process.__init__(hook, **options)  # type: ignore[misc]
    return process


# ---- process and device


def owner() -> Owner:
    return process.owner


def diagnoses() -> list[str]:
    return []


def journal_recorded() -> bool:
    return False


def driver_available() -> str | None:
    return process.driver


def device_count() -> int:
    return 1


def device_info(ordinal: int) -> DeviceInfo:
    return process.device


# ---- zones


def zone_open(device: int, name: str, kind: str, base: int = 0, size: int = 0) -> int:
    for zone in process.zones.values():
        if zone.name == name:
            if zone.kind != kind:
                raise fail("invalid", f"zone {name} is {zone.kind}")
            return zone.slot
    slot = len(process.zones)
    base = base or ZONE_BASE + slot * ZONE_SIZE
    if any(zone.base == base for zone in process.zones.values()):
        raise fail("state", f"address {base:#x} is taken")
    process.zones[slot] = Zone(slot, name, kind, base, size or ZONE_SIZE, base)
    process.calls.append(f"open {name}")
    return slot


def zone_alloc(slot: int, nbytes: int, alignment: int = 0, stream: int = 0) -> int:
    zone = process.zones[slot]
    if process.sealed and slot not in process.out_of_memory_in:
        return process.plain_alloc(nbytes)
    if slot in process.out_of_memory_in:
        raise fail("out_of_memory", f"zone {zone.name} is full")
    at = next((i for i, (_, size) in enumerate(zone.expected) if size == nbytes), None)
    if at is not None:
        address = zone.expected.pop(at)[0]
    else:
        address = zone.used_end
        zone.used_end += nbytes + 64
    assert address not in process.memory
    process.memory[address] = bytearray(nbytes)
    zone.log.append((address, nbytes))
    return address


def zone_free(address: int, stream: int = 0) -> None:
    slot = in_zone(address)
    if slot is None:
        process.plain_free(address)
    elif process.zones[slot].kind != "rebuilt":
        process.quarantined.append(address)
    elif process.pins == 0:
        del process.memory[address]


def in_zone(address: int) -> int | None:
    for zone in process.zones.values():
        if zone.base <= address < zone.base + zone.size:
            return zone.slot
    return None


def set_ambient(device: int, slot: int | None) -> None:
    process.ambient = slot


def capture_delta(delta: int) -> None:
    process.calls.append(f"capture {delta:+d}")


def seal(sealed: bool) -> None:
    process.sealed = sealed


def release_quarantine() -> None:
    process.calls.append("release")


def take_allocation_errors() -> list[str]:
    return []


# ---- kernels and memory


def numbers(seed: int, offset: int, count: int) -> bytes:
    """Random bytes of a generator's state."""
    return hashlib.shake_128(f"{seed}/{offset}".encode()).digest(count)


def run(program: Any) -> None:
    """Executes (operation, destination, sources, bytes) nodes on the process's memory."""
    for operation, destination, sources, nbytes in program:
        if operation == "record":
            process.events.append(destination)
            continue
        data = [read_memory(source, 8 if operation == "random" else nbytes) for source in sources]
        if operation == "add":
            result = bytes((a + b) & 255 for a, b in zip(*data, strict=True))
        elif operation == "copy":
            (result,) = data
        elif operation == "noise":
            result = os.urandom(nbytes)
        elif operation == "random":
            seed, offset = (int.from_bytes(word, "little") for word in data)
            result = numbers(seed, offset, nbytes)
        else:
            raise AssertionError(operation)
        write_memory(destination, result)


def read_memory(address: int, nbytes: int) -> bytes:
    data, at = process.find(address, nbytes)
    return bytes(data[at : at + nbytes])


def write_memory(address: int, data: bytes) -> None:
    target, at = process.find(address, len(data))
    target[at : at + len(data)] = data


def copy_memory(destination: int, source: int, nbytes: int) -> None:
    write_memory(destination, read_memory(source, nbytes))


def synchronize(device: int) -> None:
    pass
