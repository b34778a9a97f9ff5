"""Runs an engine, each time in a process of its own: native, under SAVE, under LOAD; and prints what came of it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from foundry.recipes.engines import in_turns
from foundry.text import count, size

Results = dict[str, Any]
AddOptions = Callable[[argparse.ArgumentParser], None]
console = Console(highlight=False)

# What a process that serves prints first, and before each measured value.
READY, VALUE = "recipe: ready", "recipe: ms "


def parser(name: str, text: str | None, archive: str, add_options: AddOptions) -> argparse.ArgumentParser:
    """The command line of a recipe."""
    made = argparse.ArgumentParser(
        prog=f"python -m foundry.recipes.{name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--archive", default=archive, help="directory of the archive (default: %(default)s)")
    made.add_argument("--folder", help="keep logs and results there (default: a temporary folder)")
    add_options(made)
    return made


def passed(options: argparse.Namespace, add_options: AddOptions) -> list[str]:
    """The options of the engine, as its process is given them."""
    known = argparse.ArgumentParser()
    add_options(known)
    found: list[str] = []
    for action in known._actions:
        value = getattr(options, action.dest, None)
        if not action.option_strings or value is None or value is False:
            continue
        found.append(action.option_strings[0])
        found += [] if value is True else list(map(str, value)) if isinstance(value, list) else [str(value)]
    return found


@dataclass
class Serving:
    """An engine that lives and measures when it is asked."""

    results: Results
    process: subprocess.Popen[str]

    def ask(self, batch: int) -> float:
        """Milliseconds a token at a batch size, measured now."""
        assert self.process.stdin is not None
        print(batch, file=self.process.stdin, flush=True)
        answer = _answer(self.process, VALUE)
        if answer is None:
            raise RuntimeError(f"an engine ended while it was asked for batch {batch}: see its log in --folder")
        return float(answer)


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
        with self._log(name) as log:
            process = self._start(mode, name, extra, stdout=log, stderr=log)
            self._follow(process, name)
        return self._results(name, process.wait())

    @contextmanager
    def serving(self, mode: str, name: str = "", extra: Sequence[str] = ()) -> Iterator[Serving | None]:
        """The same, but after its own measurements it lives as long as the block and measures when asked."""
        name = name or mode
        with self._log(name) as log:
            process = self._start(
                mode, name, [*extra, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
            follower = threading.Thread(target=self._follow, args=(process, name))
            follower.start()
            try:
                ready = _answer(process, READY) is not None
                found = self._results(name, 0 if ready else process.wait())
                yield None if found is None else Serving(found, process)
            finally:
                assert process.stdin is not None
                with suppress(BrokenPipeError):  # it may have ended
                    process.stdin.close()
                process.wait()
                follower.join()

    def _log(self, name: str) -> TextIO:
        return (self.path / f"{name}.log").open("w")

    def _start(self, mode: str, name: str, extra: Sequence[str], **streams: Any) -> subprocess.Popen[str]:
        results = self.path / f"{name}.json"
        results.unlink(missing_ok=True)
        console.print(f"{name}: starting", markup=False)
        return subprocess.Popen(
            [*self.command(mode, results), *extra], env=environment(), text=True, errors="replace", **streams
        )

    def _follow(self, process: subprocess.Popen[str], name: str) -> None:
        """Prints Foundry's lines of a log while the process lives. A file, not a pipe: it may leave children behind."""
        begin = time.monotonic()
        with (self.path / f"{name}.log").open(errors="replace") as log:
            part = ""
            while True:
                ended = process.poll() is not None
                for piece in log:
                    part += piece
                    if part.endswith("\n"):
                        if "Foundry:" in part:
                            said = (
                                f"{name}: {time.monotonic() - begin:5.1f} s  {part[part.index('Foundry:') :].strip()}"
                            )
                            console.print(said, soft_wrap=True, markup=False)
                        part = ""
                if ended:
                    return
                time.sleep(0.1)

    def _results(self, name: str, code: int) -> Results | None:
        path = self.path / f"{name}.json"
        if code == 0 and path.exists():
            found: Results = json.loads(path.read_text())
            return found
        last = (self.path / f"{name}.log").read_text(errors="replace").splitlines()[-30:]
        console.print(f"{name} ended with code {code}:", *last, sep="\n", markup=False)
        return None


def environment() -> dict[str, str]:
    """From a workspace, packages are on the path of this process alone."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _answer(process: subprocess.Popen[str], beginning: str) -> str | None:
    """What follows `beginning` in the next line of that kind; None if the process ends before."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return line[len(beginning) :].strip()
    return None


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table, the first column to the left."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        made.add_column(head, justify="left" if i == 0 else "right")
    for row in rows:
        made.add_row(*row)
    console.print(made)


def replays(rows: Sequence[Mapping[str, Any]], native: str, restored: str) -> None:
    """Prints what in_turns measured, a row for each batch size; `native`, `restored`: heads of columns."""
    others = any("others" in row for row in rows)
    table(
        ("batch", native, restored, "ratio", "native 5 % .. 95 %", *(["other native ones"] if others else [])),
        [
            (
                str(row["batch"]),
                f"{row['native']:.4f}",
                f"{row['restored']:.4f}",
                f"{row['ratio']:.4f}",
                f"{row['native_p5']:.4f} .. {row['native_p95']:.4f}",
                *([" ".join(f"{other:.4f}" for other in row["others"])] if others else []),
            )
            for row in rows
        ],
    )
    slow = [str(row["batch"]) for row in rows if not in_turns.as_good(row)]
    if slow:
        console.print(f"slower than native by more than 0.5 % and than native ones spread: batch {', '.join(slow)}")


def equal_tokens(first: dict[str, list[list[int]]], second: dict[str, list[list[int]]]) -> dict[str, tuple[int, int]]:
    """By batch size: how many prompts got equal tokens, of how many."""
    return {
        name: (sum(a == b for a, b in zip(tokens, second.get(name, []), strict=False)), len(tokens))
        for name, tokens in first.items()
    }


def keep_tokens(results: Results, archive: str) -> None:
    """SAVE: its greedy tokens, beside the archive. SAVE has only native graphs."""
    _golden(archive).write_text(json.dumps(results["tokens"]))


def tokens_as_saved(results: Results, archive: str) -> bool:
    """LOAD: prints whether its greedy tokens are those of SAVE; False if they are not."""
    path = _golden(archive)
    if not path.exists():
        console.print(f"{path} is not there: tokens are not compared", markup=False)
        return True
    saved = {name: tokens for name, tokens in json.loads(path.read_text()).items() if name in results["tokens"]}
    compared = equal_tokens(saved, results["tokens"])
    same, total = (sum(numbers) for numbers in zip(*compared.values(), strict=True)) if compared else (0, 0)
    console.print(f"{same} of {total} answers have the tokens of SAVE", markup=False)
    return same == total


def save(options: argparse.Namespace, runs: Runs, starts: Callable[[dict[str, Results]], None]) -> int:
    """The recipes that save: one start, its table (`starts` prints it), its tokens; the exit code."""
    with runs:
        saved = runs.run("save")
    if saved is None:
        return 1
    starts({"SAVE": saved})
    summary(saved)
    if saved["foundry"]["outcome"] == "saved":
        keep_tokens(saved, options.archive)
    return 0 if saved["foundry"]["outcome"] == "saved" and not saved["foundry"]["left_out"] else 1


def has_archive(options: argparse.Namespace, runs: Runs) -> bool:
    """Saves the archive if there is none; False if that failed."""
    if os.path.isdir(options.archive):
        return True
    saved = runs.run("save")
    if saved is not None:
        summary(saved)
    return saved is not None


def _golden(archive: str) -> Path:
    return Path(f"{archive.rstrip('/')}.tokens.json")


def summary(results: Results) -> None:
    """What Foundry did, in a few lines."""
    done = results["foundry"]
    if done["outcome"] == "saved":
        console.print(
            f"saved {count(done['saved'], 'graph')} to {done['archive']} ({size(done['archive_bytes'])}), "
            f"{count(len(done['left_out']), 'graph')} left out",
            markup=False,
        )
    elif done["outcome"] == "restored":
        console.print(
            f"restored {count(done['restored'], 'graph')} from {done['archive']}: {done['in_place']} tensors in place, "
            f"{done['reseated']} re-seated, {size(done['mapped_bytes'])} mapped, "
            f"{size(done['content_bytes'])} of content",
            markup=False,
        )
    else:
        console.print(f"no graph was saved or restored: {done.get('reason') or done['outcome']}", markup=False)
    for name, counts in done.get("kernel_caches", {}).items():
        what = ", ".join(f"{value} {key}" for key, value in counts.items() if value and isinstance(value, int))
        console.print(f"compiled kernels ({name}): {what or 'none'}", markup=False)
    for name, why in {**done.get("left_out", {}), **done.get("fell_back", {})}.items():
        console.print(f"  {name}: {why if isinstance(why, str) else ' '.join(why)}", markup=False)


def restored(results: Results) -> bool:
    """Whether every graph came from the archive."""
    done = results["foundry"]
    return done["outcome"] == "restored" and done["restored"] > 0 and not done["fell_back"]
