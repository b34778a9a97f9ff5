"""Runs engines for the SGLang recipes, each in a process of its own, and prints what came of them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.table import Table

from foundry.recipes import sglang_engine
from foundry.text import size

Start = dict[str, Any]
console = Console(highlight=False)


def arguments(name: str, text: str | None, argv: Sequence[str] | None, native: bool = False) -> argparse.Namespace:
    """The command line of a recipe."""
    parser = argparse.ArgumentParser(
        prog=f"python -m foundry.recipes.{name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sglang_engine.add_options(parser)
    parser.add_argument("--archive", default="sglang.fdry", help="directory of the archive (default: %(default)s)")
    parser.add_argument("--folder", help="keep logs and results there (default: a temporary folder)")
    if native:
        parser.add_argument("--native", action="store_true", help="start a native engine too and compare tokens")
    return parser.parse_args(argv)


@dataclass
class Serving:
    """An engine that is asked in turns with another one."""

    start: Start
    process: subprocess.Popen[str]

    def step_ms(self, batch: int) -> float:
        """Milliseconds a step, measured now."""
        assert self.process.stdin is not None
        print(batch, file=self.process.stdin, flush=True)
        answer = _answer(self.process, "ms ")
        if not answer:
            raise RuntimeError(f"an engine ended while it was asked for batch {batch}: see its log in --folder")
        return float(answer)


class Folder:
    """Where logs and results lie."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._temporary = None if options.folder else tempfile.TemporaryDirectory()
        self.path = Path(options.folder or self._temporary.name)  # type: ignore[union-attr]

    def __enter__(self) -> Folder:
        self.path.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def run(self, mode: str) -> Start | None:
        """Starts an engine, lets it answer and end. None if it failed; the end of its log is printed then."""
        with console.status(f"{mode}: starting SGLang"), self._log(mode).open("w") as log:
            code = subprocess.run(
                self._command(mode), env=_environment(), stdout=log, stderr=log, check=False
            ).returncode
        return self._result(mode, code)

    @contextmanager
    def serving(self, mode: str) -> Iterator[Serving | None]:
        """The same, but it lives as long as the block and measures when asked."""
        with self._log(mode).open("w") as log:
            process = subprocess.Popen(
                [*self._command(mode), "--serve"],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            try:
                with console.status(f"{mode}: starting SGLang"):
                    ready = _answer(process, '{"start_s"')
                start = self._result(mode, 0 if ready else process.wait())
                yield None if start is None else Serving(start, process)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                process.wait()

    def _command(self, mode: str) -> list[str]:
        options = self._options
        python = [sys.executable, "-m", "foundry.recipes.sglang_engine", "--json", str(self.path / f"{mode}.json")]
        for name in ("model", "layers", "max_batch", "context", "memory", "attention", "tokens", "repeats"):
            value = getattr(options, name)
            python += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
        python += ["--batches", *map(str, options.batches)]
        archive = os.path.abspath(options.archive)
        foundry = [sys.executable, "-m", "foundry", "run", f"--{mode}", "--archive", archive, "--"]
        return python if mode == "native" else [*foundry, *python]

    def _log(self, mode: str) -> Path:
        return self.path / f"{mode}.log"

    def _result(self, mode: str, code: int) -> Start | None:
        results = self.path / f"{mode}.json"
        log = self._log(mode).read_text(errors="replace").splitlines()
        for line in log:
            if "Foundry:" in line:
                console.print(f"{mode}: {line[line.index('Foundry:') :]}", soft_wrap=True, markup=False)
        if code == 0 and results.exists():
            start: Start = json.loads(results.read_text())
            return start
        console.print(f"{mode} ended with code {code}:", *log[-30:], sep="\n", markup=False)
        return None


def _environment() -> dict[str, str]:
    # From a workspace, packages are on the path of this process alone.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _answer(process: subprocess.Popen[str], beginning: str) -> str:
    """What follows `beginning` in the next line of that kind; "" if the process ends before."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return line[len(beginning) :].strip()
    return ""


def count(start: Start, kind: str, during: str = "") -> int:
    """How many captures or compilations there were: all, or those of a phase."""
    return sum(line["kind"] == kind and during in ("", line["during"]) for line in start["probe"])


def seconds(start: Start, *phases: str) -> float:
    """Of phases of the start."""
    return sum(float(line["seconds"]) for line in start["probe"] if line["kind"] == "phase" and line["name"] in phases)


def print_starts(starts: dict[str, Start]) -> None:
    """Seconds and counts of each start, side by side."""
    phases = {
        "weights": ("load_model",),
        "KV cache": ("init_memory_pool", "alloc_memory_pool"),
        "attention": ("init_attention_backend", "init_attention_backends"),
        "captures, or restore": ("init_device_graphs", "init_cuda_graphs"),
    }
    graphs = ("init_device_graphs", "init_cuda_graphs")
    rows = [("engine start, s", *(f"{start['start_s']:.1f}" for start in starts.values()))]
    rows += [(f"  {name}", *(f"{seconds(s, *p):.2f}" for s in starts.values())) for name, p in phases.items()]
    rows.append(("first token after that, s", *(f"{start['first_token_s']:.2f}" for start in starts.values())))
    rows.append(("graphs captured", *(str(count(start, "capture")) for start in starts.values())))
    for kind, name in (("triton", "Triton kernels"), ("module", "CUDA modules")):
        rows.append((f"{name} compiled", *(str(count(start, kind)) for start in starts.values())))
        rows.append(
            ("  while capturing", *(str(sum(count(s, kind, phase) for phase in graphs)) for s in starts.values()))
        )
    rows += [
        (f"ms a step, batch {batch}", *(f"{start['step_ms'].get(batch, 0):.3f}" for start in starts.values()))
        for batch in next(iter(starts.values()))["step_ms"]
    ]
    table(("", *starts), rows)


def print_archive(path: str) -> None:
    """Its size."""
    console.print(f"{path}: {size(sum(file.stat().st_size for file in Path(path).rglob('*') if file.is_file()))}")


def print_tokens(first: Start, second: Start) -> bool:
    """Whether greedy tokens are equal, in every set of prompts."""
    equal = True
    for name, tokens in first["tokens"].items():
        same = sum(a == b for a, b in zip(tokens, second["tokens"][name], strict=True))
        label = "8 prompts" if name == "prompts" else f"batch {name}"
        console.print(f"{label}: {same} of {len(tokens)} answers have equal tokens")
        equal = equal and same == len(tokens)
    return equal


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, the first column to the left."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        made.add_column(head, justify="left" if i == 0 else "right")
    for row in rows:
        made.add_row(*row)
    console.print(made)
