"""Runs tests.integration.story.drive in processes of its own on the simulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundry.cli import hook
from foundry.recipes import simulated

DEVICES = {"a100-40gb": 80, "h100": 90}
GRAPHS = ["decode/48", "decode/32", "decode/24", "decode/21", "decode/16", "decode/8", "decode/4", "decode/2",
          "decode/1"]  # fmt: skip
# What must be the same however the graphs came about.
EQUAL = ("outputs", "tokens", "sampled_tokens")


@dataclass(frozen=True)
class Done:
    """A finished process. `results` is empty if it wrote none."""

    code: int
    results: dict[str, Any]
    output: str

    @property
    def report(self) -> dict[str, Any]:
        """The session's report."""
        found: dict[str, Any] = self.results["report"]
        return found

    @property
    def error(self) -> str:
        """The sentence of the refusal that was raised."""
        found: str = self.results["error"]["sentence"]
        return found


@dataclass(frozen=True)
class Place:
    """A folder with one archive, and the GPU it is used on."""

    folder: Path
    device: str

    @property
    def archive(self) -> Path:
        return self.folder / "decode.fdry"

    def environment(self, preload: bool, **env: str) -> dict[str, str]:
        """The environment of a process; `preload`: as `foundry run --save` makes it, or with another FOUNDRY_MODE."""
        made = {name: value for name, value in os.environ.items() if not name.startswith("FOUNDRY_")}
        if simulated.FOLDER_VARIABLE in os.environ:
            made[simulated.FOLDER_VARIABLE] = os.environ[simulated.FOLDER_VARIABLE]
        made = {**simulated.environment(made, self.device), **env}
        if preload:
            made = hook.with_preload({"FOUNDRY_MODE": "save", **made}, hook.hook_library(DEVICES[self.device], {}))
        return made

    def command(self, mode: str, *options: str, kinds: tuple[type, ...] = (), archive: Path | None = None) -> list[str]:
        """The command line of one start."""
        chosen = [f"--kind={kind.__module__}:{kind.__name__}" for kind in kinds]
        where = [str(archive or self.archive), str(self.folder / f"{mode}.json")]
        return [sys.executable, "-m", "tests.integration.story.drive", mode, *where, *chosen, *options]

    def run(
        self, mode: str, *options: str, kinds: tuple[type, ...] = (), archive: Path | None = None,
        preload: bool | None = None, device: str | None = None, **env: str,
    ) -> Done:  # fmt: skip
        """One start of the engine; only SAVE gets the hook unless `preload` says otherwise."""
        results = self.folder / f"{mode}.json"
        results.unlink(missing_ok=True)
        place = Place(self.folder, device or self.device)
        done = subprocess.run(
            self.command(mode, *options, kinds=kinds, archive=archive), capture_output=True, text=True, timeout=120,
            check=False, env=place.environment(mode == "save" if preload is None else preload, **env),
        )  # fmt: skip
        found = json.loads(results.read_text()) if results.exists() else {}
        return Done(done.returncode, found, done.stdout + done.stderr)

    def save(self, *options: str, kinds: tuple[type, ...] = (), **env: str) -> Done:
        """A SAVE that must succeed, in one pass, with every graph."""
        done = self.run("save", *options, kinds=kinds, archive=None, preload=None, device=None, **env)
        assert done.code == 0 and "error" not in done.results, done.output + str(done.results.get("error"))
        assert done.report["outcome"] == "saved" and done.report["saved"] == GRAPHS, done.results["text"]
        assert done.report["left_out"] == {}, done.results["text"]
        return done


def restored(done: Done, save: Done) -> None:
    """Every graph came from the archive, nothing was captured or run for it, and all results are SAVE's."""
    assert done.code == 0 and "error" not in done.results, done.output + str(done.results.get("error"))
    report = done.report
    assert report["outcome"] == "restored", done.results["text"]
    assert report["restored"] == GRAPHS and report["fell_back"] == {} and report["differences"] == []
    assert done.results["notes"]["forwards"] == 0 and done.results["notes"]["warm_up_captures"] == 0
    same(done, save)


def native(done: Done, save: Done | None) -> None:
    """The process lives and serves natively captured graphs, with SAVE's results where the engine is the same."""
    assert done.code == 0, done.output
    assert done.report["outcome"] == "native", done.results["text"]
    assert done.report["restored"] == []
    if save is not None:
        same(done, save)
    assert done.results["tokens"] == done.results["tokens_eager"]
    assert done.results["sampled_tokens"] == done.results["sampled_tokens_eager"]


def same(done: Done, save: Done) -> None:
    """All results are equal, bit for bit, and replays agree with eager forwards."""
    for key in EQUAL:
        assert done.results[key] == save.results[key], key
    assert done.results["tokens"] == done.results["tokens_eager"]
    assert done.results["sampled_tokens"] == done.results["sampled_tokens_eager"]


def nothing_mapped(done: Done) -> None:
    """The refusal came before anything was allocated and left no zone, no mapping, no image and no graph."""
    found = done.results["footprint"]
    after = found["after"] if found["begun"] is None else found["begun"]
    assert after["zones"] == {}
    assert after == found["before"]
