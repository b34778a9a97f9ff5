"""Runs an engine, each time in a process of its own: native, under SAVE, under LOAD."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.table import Table

Results = dict[str, Any]
console = Console(highlight=False)


class Runs:
    """Logs and results lie in `folder`, or in a temporary one that goes with this object.

    module: the program that starts the engine once and writes its results to the file after --json.
    """

    def __init__(self, module: str, arguments: Sequence[str], archive: str, folder: str | None) -> None:
        self._module = module
        self._arguments = list(arguments)
        self._archive = os.path.abspath(archive)
        self._temporary = None if folder else tempfile.TemporaryDirectory()
        self.path = Path(folder or self._temporary.name)  # type: ignore[union-attr]

    def __enter__(self) -> Runs:
        self.path.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def command(self, mode: str, results: Path) -> list[str]:
        """The command line of one run; mode is "native", "save", "load" or "auto"."""
        program = [sys.executable, "-m", self._module, "--json", str(results), *self._arguments]
        if mode == "native":
            return program
        return [sys.executable, "-m", "foundry", "run", f"--{mode}", "--archive", self._archive, "--", *program]

    def run(self, mode: str, name: str = "", extra: Sequence[str] = ()) -> Results | None:
        """One run; None if it failed, the end of its log is printed then. Foundry's lines are printed as they come."""
        name = name or mode
        results, log_path = self.path / f"{name}.json", self.path / f"{name}.log"
        results.unlink(missing_ok=True)
        begin = time.monotonic()
        console.print(f"{name}: starting", markup=False)
        process = subprocess.Popen(
            [*self.command(mode, results), *extra],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        last: list[str] = []
        assert process.stdout is not None
        with log_path.open("w") as log:
            for line in process.stdout:
                log.write(line)
                last = [*last[-29:], line.rstrip()]
                if "Foundry:" in line:
                    said = line[line.index("Foundry:") :].strip()
                    console.print(f"{name}: {time.monotonic() - begin:5.1f} s  {said}", soft_wrap=True, markup=False)
        code = process.wait()
        if code == 0 and results.exists():
            found: Results = json.loads(results.read_text())
            return found
        console.print(f"{name} ended with code {code}:", *last, sep="\n", markup=False)
        return None


def environment() -> dict[str, str]:
    """From a workspace, packages are on the path of this process alone."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table, the first column to the left."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        made.add_column(head, justify="left" if i == 0 else "right")
    for row in rows:
        made.add_row(*row)
    console.print(made)


def equal_tokens(first: dict[str, list[list[int]]], second: dict[str, list[list[int]]]) -> dict[str, tuple[int, int]]:
    """By batch size: how many prompts got equal tokens, of how many."""
    return {
        name: (sum(a == b for a, b in zip(tokens, second.get(name, []), strict=False)), len(tokens))
        for name, tokens in first.items()
    }
