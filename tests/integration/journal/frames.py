"""Allocations from C with and without the interpreter lock, journaled with Python frames: a process of test_frames.py.

usage: frames.py lock|threads|exception
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
from typing import Any

from foundry import _core

MIB = 1 << 20


def functions(kind: type[ctypes.CDLL], slot: int) -> tuple[Any, Any]:
    """malloc and free of the zone; PyDLL keeps the interpreter lock during a call, CDLL lets go of it."""
    symbols = _core.allocator_symbols(slot)
    library = kind(symbols.library)
    malloc, free = library[symbols.malloc], library[symbols.free]
    malloc.restype = ctypes.c_void_p
    malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    free.restype = None
    free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    return malloc, free


def with_lock(slot: int, secret: str) -> int:
    malloc, _ = functions(ctypes.PyDLL, slot)
    return int(malloc(2 * MIB, 0, None))


def without_lock(slot: int) -> int:
    malloc, _ = functions(ctypes.CDLL, slot)
    return int(malloc(4 * MIB, 0, None))


def through_core(slot: int) -> int:
    return _core.zone_alloc(slot, 6 * MIB)


def churn(slot: int, kind: type[ctypes.CDLL]) -> None:
    malloc, free = functions(kind, slot)
    for _ in range(100):
        address = malloc(2 * MIB, 0, None)
        Finalized()
        free(address, 2 * MIB, 0, None)


class Finalized:
    """Runs Python code, and allocates, whenever it is collected."""

    slot = 0
    runs = 0

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        Finalized.runs += 1
        through_core(self.slot)


def main() -> None:
    slot = _core.zone_open(0, "weights", "rebuilt")
    found: dict[str, Any] = {}
    if sys.argv[1] == "lock":
        with_lock(slot, secret="do not tell")
        without_lock(slot)
        through_core(slot)
    elif sys.argv[1] == "exception":
        malloc, _ = functions(ctypes.PyDLL, slot)
        try:
            raise KeyError("on its way")
        except KeyError as problem:
            malloc(2 * MIB, 0, None)
            found["kept"] = repr(problem) == repr(sys.exc_info()[1])
        found["collects"] = gc.isenabled()
        gc.disable()
        malloc(2 * MIB, 0, None)
        found["still off"] = not gc.isenabled()
    else:
        Finalized.slot = slot
        gc.set_threshold(1, 1, 1)
        kinds: list[type[ctypes.CDLL]] = [ctypes.PyDLL, ctypes.CDLL] * 3
        threads = [threading.Thread(target=churn, args=(slot, kind)) for kind in kinds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        found["finalized"] = Finalized.runs
    journal = _core.Journal.of_process(0)
    allocations = journal.allocations(0)
    found["allocations"] = [
        [each.bytes // MIB, [[f.function, f.file, f.line] for f in journal.stack(each.stack).python_frames]]
        for each in allocations[:20]
    ]
    found["count"] = len(allocations)
    found["native"] = all(journal.stack(each.stack).frames for each in allocations)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
