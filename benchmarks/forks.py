"""Trials in processes of their own: a child begins where the parent stands, with its imports and without a GPU."""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def run(trial: Callable[[], dict[str, Any]], seconds: float = 60) -> dict[str, Any]:
    """What the trial returns in a child process; {"error": ...} if it raises, dies or takes longer."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        try:
            answer = trial()
            code = 0
        except BaseException as problem:
            traceback.print_exc()
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        with os.fdopen(writing, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(code)  # without taking anything down: the next trial waits
    os.close(writing)
    data = b""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(reading, 1 << 16)
            if not piece:
                break
            data += piece
        else:
            os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    try:
        found: dict[str, Any] = json.loads(data)
    except ValueError:
        return {"error": f"ended with status {status} and no answer"}
    return found
