"""`foundry verify`: every byte of an archive, and with a command what its graphs compute."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foundry import _core, archive_json, modes
from foundry.cli import inspecting
from foundry.errors import corrupt
from foundry.saving import RANK
from foundry.text import count, size

OK, BAD, NO_ANSWER = 0, 1, 3
_GOOD = ("equal", "within spread", "not comparable")


@dataclass
class Files:
    """An archive whose files are all as foundry.json says."""

    found: inspecting.Inspection
    golden: list[str]  # graphs with a golden run


def check_files(path: str) -> Files:
    """Reads every byte: hashes, indices, images, golden runs. Raises FoundryError that names the first damage."""
    found = inspecting.open_archive(path)
    inventory = list(found.manifest.inventory)
    here = {name: (nbytes, digest) for name, nbytes, digest in _core.describe_files(found.path)}
    for name, nbytes, digest in inventory:
        if here.pop(name, None) != (nbytes, digest):
            raise corrupt(f"{found.path}/{name} is missing, or is not the file that foundry.json lists")
    if here:
        raise corrupt(f"{found.path}/{min(here)} is not listed in foundry.json")
    golden = []
    if any(name == archive_json.GOLDEN for name, _, _ in inventory):
        golden = [run.name for run in _core.golden_runs(found.archive, RANK, inventory)]
    return Files(found, golden)


@dataclass
class Run:
    """What a program found that loaded the archive. `problem`: why there are no verdicts to trust."""

    exit_code: int
    problem: str
    verdicts: list[dict[str, str]]
    report: dict[str, Any]

    @property
    def code(self) -> int:
        """The command's exit code."""
        if self.problem:
            return NO_ANSWER
        return OK if all(verdict["verdict"] in _GOOD for verdict in self.verdicts) else BAD


def run_command(path: str, command: Sequence[str]) -> Run:
    """Starts the program so that its session LOADs and replays the golden runs; waits for its end."""
    with tempfile.TemporaryDirectory(prefix="foundry-verify-") as folder:
        answer = os.path.join(folder, "report.json")
        environment = {
            **os.environ,
            modes.MODE_VARIABLE: "load",
            modes.ARCHIVE_VARIABLE: os.path.abspath(path),
            modes.VERIFY_VARIABLE: "1",
            modes.VERIFY_REPORT_VARIABLE: answer,
        }
        try:
            code = subprocess.run(list(command), env=environment, check=False).returncode
        except OSError as problem:
            return Run(127, f"{command[0]} cannot be started: {problem.strerror}", [], {})
        try:
            with open(answer, encoding="utf-8") as file:
                report = json.load(file)
        except (OSError, ValueError):
            return Run(code, f"the program entered no session (exit code {code})", [], {})
    return Run(code, _problem(path, code, report), report["verdicts"], report)


def _problem(path: str, code: int, report: dict[str, Any]) -> str:
    if not report["archive"] or not os.path.exists(report["archive"]):
        return f"the program did not load {path}: its session was {report['outcome']} {report['reason']}".rstrip()
    if not os.path.samefile(report["archive"], path):
        return f"the program loaded {report['archive']}: let it take the archive from {modes.ARCHIVE_VARIABLE}"
    if report["outcome"] != "restored" and not report["verdicts"]:
        return f"the archive was not restored: {report['reason']}"
    if code != 0:
        return f"the program ended with exit code {code}"
    if not report["verdicts"]:
        return "; ".join(report["warnings"]) or "nothing was compared"
    return ""


def as_json(files: Files, run: Run | None) -> dict[str, Any]:
    """The document of --json."""
    document: dict[str, Any] = {
        "archive": files.found.path,
        "files": [{"name": n, "bytes": b, "hash": h} for n, b, h in files.found.manifest.inventory],
        "graphs": [graph.name for graph in files.found.graphs],
        "golden": files.golden,
        "warnings": files.found.warnings,
    }
    if run is not None:
        document |= {"exit_code": run.exit_code, "problem": run.problem, "verdicts": run.verdicts}
    return document


def show(files: Files, run: Run | None, console: Console) -> None:
    """The same for people."""
    inventory = files.found.manifest.inventory
    console.print(
        f"{files.found.path}: {count(len(inventory), 'file')} ({size(sum(n for _, n, _ in inventory))}) as written: "
        f"hashes, indices and {count(len(files.found.archive.images), 'code image')}; "
        f"{count(len(files.found.graphs), 'graph')}, {len(files.golden)} with a golden run",
        highlight=False,
        soft_wrap=True,
    )
    for warning in files.found.warnings:
        console.print(f"warning: {warning}", soft_wrap=True, markup=False)
    if run is None:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("graph", "golden run", ""):
        table.add_column(name, overflow="fold")
    for verdict in run.verdicts:
        table.add_row(*(escape(verdict[key]) for key in ("graph", "verdict", "detail")))
    if run.verdicts:
        console.print(table)
    if run.problem:
        console.print(f"not verified: {run.problem}", soft_wrap=True, markup=False)
