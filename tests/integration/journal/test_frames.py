"""Python frames in the journal: there where they can be had, and nobody ever waits for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from foundry.recipes import simulated

PROGRAM = str(Path(__file__).parent / "frames.py")


def run(what: str, level: str = "stacks,python") -> dict[str, Any]:
    env = {**simulated.environment(os.environ, "h100"), "FOUNDRY_JOURNAL": level}
    done = subprocess.run(
        [sys.executable, PROGRAM, what], capture_output=True, text=True, timeout=120, check=False, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_frames_are_taken_with_the_lock_only() -> None:
    found = run("lock")
    (two, held), (four, free), (six, core) = found["allocations"]
    assert (two, four, six) == (2, 4, 6) and found["native"]
    assert [frame[:2] for frame in held][:2] == [["with_lock", "frames.py"], ["main", "frames.py"]]
    assert free == []
    assert [frame[0] for frame in core][:2] == ["through_core", "main"]
    line = Path(PROGRAM).read_text().splitlines()[core[0][2] - 1]
    assert "_core.zone_alloc" in line
    assert "do not tell" not in json.dumps(found)


def test_no_python_frames_unless_asked_for() -> None:
    found = run("lock", "stacks")
    assert [frames for _, frames in found["allocations"]] == [[], [], []] and found["native"]
    found = run("lock", "off")
    assert found["count"] == 0


def test_pending_exceptions_and_the_collector_are_left_alone() -> None:
    found = run("exception")
    assert found["kept"] and found["collects"] and found["still off"]
    assert found["allocations"][0][1][0][:2] == ["main", "frames.py"]


def test_threads_with_and_without_the_lock_do_not_wait_for_each_other() -> None:
    found = run("threads")
    assert found["count"] >= 600 and found["finalized"] > 0 and found["native"]
