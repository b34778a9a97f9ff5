"""Processes of the tests on the simulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from foundry.recipes import simulated

HERE = Path(__file__).parent


PROGRAM = str(HERE / "program.py")


def start(
    mode: str, archive: Path, device: str = "h100", env: dict[str, str] | None = None, **options: Any
) -> dict[str, Any]:
    """Runs the program in one mode and returns what it wrote. Options are those of its engine."""
    out = archive.parent / f"{mode}.json"
    out.unlink(missing_ok=True)
    launcher = [sys.executable, "-m", "foundry", "run", "--save", "--"] if mode == "save" else []
    done = subprocess.run(
        [*launcher, sys.executable, PROGRAM, mode, str(archive), str(out), json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**simulated.environment(os.environ, device), **(env or {})},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def command(*arguments: str, device: str = "h100") -> subprocess.CompletedProcess[str]:
    """`foundry` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "foundry", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=simulated.environment(os.environ, device),
    )
