"""What happened when during a start: recorded by the session and the core's threads, written as Chrome-trace JSON.

FOUNDRY_TRACE=FILE records a session of any program; `foundry trace FILE -o start.html` draws it. The JSON also opens in
chrome://tracing and Perfetto.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "FOUNDRY_TRACE"

Recording = tuple[Sequence[str], Sequence[tuple[str, str, int, int, int, int, int]], int]


@dataclass(frozen=True)
class Event:
    """One stretch of one thread's time; nanoseconds of time.monotonic_ns()."""

    name: str
    detail: str
    thread: str
    begin: int
    end: int
    bytes: int = 0
    count: int = 0


log = logging.getLogger("foundry")

_lock = threading.Lock()
_events: list[Event] | None = None  # None: nothing is recorded
_file: str | None = None  # where a session's recording goes
_kept: list[Event] = []  # what was written there


def enable(enabled: bool) -> None:
    """Records from now on, in Python and in the core, or no longer; forgets what was recorded."""
    global _events
    from foundry import _core

    with _lock:
        _events = [] if enabled else None
    _core.trace_enable(enabled)
    _core.trace_take()
    if enabled:
        _core.trace_name_thread(threading.current_thread().name)


def enabled() -> bool:
    """Whether anything is recorded."""
    return _events is not None


def begin(path: str) -> None:
    """A session starts that is to be recorded in that file, which is written at the end of the process at the latest."""
    global _file
    if _file is None:
        atexit.register(flush)
    _file = path
    if not enabled():
        enable(True)


def flush() -> None:
    """Writes what was recorded since `begin`; a file that cannot be written is only reported."""
    if _file is None or not enabled():
        return
    events, dropped = take()
    _kept.extend(events)
    try:
        write(_file, _kept, dropped)
    except OSError as problem:
        log.warning("the trace is not written: %s", problem)


@contextmanager
def span(name: str, detail: str = "") -> Iterator[None]:
    """Records the time of a block, if anything is recorded."""
    if _events is None:
        yield
        return
    begin = time.monotonic_ns()
    try:
        yield
    finally:
        event = Event(name, detail, threading.current_thread().name, begin, time.monotonic_ns())
        with _lock:
            if _events is not None:
                _events.append(event)


@contextmanager
def _around(inner: AbstractContextManager[None], name: str, detail: str) -> Iterator[None]:
    with span(name, detail), inner:
        yield


def around(inner: AbstractContextManager[None], name: str, detail: str = "") -> AbstractContextManager[None]:
    """`inner`, with its time recorded if anything is."""
    return _around(inner, name, detail) if enabled() else inner


def take() -> tuple[list[Event], int]:
    """What was recorded since the last call, and how many events were dropped."""
    from foundry import _core

    threads, recorded, dropped = _core.trace_take()
    with _lock:
        events = list(_events or [])
        if _events is not None:
            _events.clear()
    events += [Event(name, detail, threads[thread], *rest) for name, detail, thread, *rest in recorded]
    return sorted(events, key=lambda event: (event.begin, -event.end)), dropped


def write(path: str | os.PathLike[str], events: Sequence[Event], dropped: int = 0) -> None:
    """Chrome-trace JSON: complete events in microseconds since the first."""
    threads = {name: index for index, name in enumerate(dict.fromkeys(event.thread for event in events))}
    start = min((event.begin for event in events), default=0)
    process = os.getpid()
    entries: list[dict[str, Any]] = [
        {"ph": "M", "pid": process, "tid": index, "name": "thread_name", "args": {"name": name}}
        for name, index in threads.items()
    ]
    for event in events:
        details = {"of": event.detail, "bytes": event.bytes, "count": event.count}
        entries.append(
            {
                "ph": "X",
                "pid": process,
                "tid": threads[event.thread],
                "name": event.name,
                "ts": (event.begin - start) / 1e3,
                "dur": (event.end - event.begin) / 1e3,
                "args": {key: value for key, value in details.items() if value},
            }
        )
    document = {"traceEvents": entries, "otherData": {"begin_ns": start, "dropped": dropped}}
    Path(path).write_text(json.dumps(document) + "\n", encoding="utf-8")


def read(path: str | os.PathLike[str]) -> list[Event]:
    """Events of a file that `write` wrote; times begin at 0. Raises ValueError where it is no such file."""
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))["traceEvents"]
        names = {entry["tid"]: str(entry["args"]["name"]) for entry in entries if entry["ph"] == "M"}
        return [
            Event(
                str(entry["name"]),
                str(entry["args"].get("of", "")),
                names[entry["tid"]],
                round(entry["ts"] * 1e3),
                round((entry["ts"] + entry["dur"]) * 1e3),
                int(entry["args"].get("bytes", 0)),
                int(entry["args"].get("count", 0)),
            )
            for entry in entries
            if entry["ph"] == "X"
        ]
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as problem:
        raise ValueError(
            f"{path} is no trace of Foundry: name the file that a start with FOUNDRY_TRACE=FILE wrote, or an archive"
        ) from problem
