"""The driver loop, the Restorer and the Snapshotter on an archive's graphs, without a session (benchmarks/*.cc)."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

LIBRARY_VARIABLE = "FOUNDRY_BENCHMARK_LIBRARY"
NAME = "libgraphs.so"


class Options(ctypes.Structure):
    """`Options` of benchmarks/archive.h, where every field is explained."""

    _fields_ = [
        (name, ctypes.c_uint32)
        for name in (
            "graphs",
            "nodes",
            "passes",
            "threads",
            "by_kernel",
            "edges_with_nodes",
            "image_threads",
            "graph_threads",
            "grow_heaps",
        )
    ]


def _call(function: str, archive: str, options: dict[str, int]) -> dict[str, Any]:
    place = Path(os.environ.get(LIBRARY_VARIABLE) or Path(__file__).absolute().parent / NAME)
    library = ctypes.CDLL(str(place))
    values = Options()
    library.foundry_default_options(ctypes.byref(values))
    for name, value in options.items():
        getattr(values, name)  # a name that is none is an error
        setattr(values, name, value)
    answer = ctypes.create_string_buffer(1 << 16)
    call = getattr(library, function)
    call.argtypes = [ctypes.c_char_p, ctypes.POINTER(Options), ctypes.c_char_p, ctypes.c_size_t]
    if call(archive.encode(), ctypes.byref(values), answer, len(answer)) != 0:
        raise RuntimeError(answer.value.decode())
    result: dict[str, Any] = json.loads(answer.value)
    return result


def driver_loop(archive: str, **options: int) -> dict[str, Any]:
    """Adds the nodes of every graph and instantiates it, in one loop. A context must be current."""
    return _call("foundry_driver_loop", archive, options)


def restore(archive: str, **options: int) -> dict[str, Any]:
    """The same graphs through the Restorer."""
    return _call("foundry_restore", archive, options)


def snapshot(archive: str, **options: int) -> dict[str, Any]:
    """Builds the graphs and reads them as SAVE does; "ns": what each of the driver's calls takes for a kernel node."""
    return _call("foundry_snapshot", archive, options)
