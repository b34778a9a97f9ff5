"""Runs of an engine for the tests of this folder: each in processes of its own, side by side, with a log and results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest


def gpus() -> int:
    """How many there are, without a context of this process on any."""
    import torch

    return torch.cuda.device_count()


class Engines:
    """Runs of engines by name, each once, started when they can be and waited for when they are asked for.

    module: the program that starts the engine; `common`: arguments of every run; `together`: engines at a time on a GPU.
    A run has the next of the machine's GPUs, so archives are also restored on another GPU than they were saved on; one
    with CUDA_VISIBLE_DEVICES in its `env` has those. With FOUNDRY_TEST_REUSE=1 runs whose logs are in `folder` already
    are judged, not repeated.
    """

    def __init__(self, folder: Path, module: str, common: Sequence[str], together: int, timeout_s: float) -> None:
        self.folder = folder
        self._module, self._common, self._timeout_s = module, list(common), timeout_s
        self._slots = [threading.Semaphore(together) for _ in range(max(gpus(), 1))]
        self._threads: dict[str, threading.Thread] = {}
        self._codes: dict[str, int | str] = {}

    def start(
        self,
        name: str,
        mode: str,
        arguments: Sequence[str],
        archive: str = "",
        after: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Begins a run; `after`: when that one has ended."""
        if name not in self._threads and self._ran(name):
            self._codes[name] = 0
            self._threads[name] = threading.Thread()  # which has nothing to do
            self._threads[name].start()
        elif name not in self._threads:
            gpu = len(self._threads) % len(self._slots)
            env = {"CUDA_VISIBLE_DEVICES": str(gpu), **(env or {})} if len(self._slots) > 1 else env or {}
            thread = threading.Thread(target=self._run, args=(name, mode, arguments, archive, after, env, gpu))
            self._threads[name] = thread
            thread.start()

    def _ran(self, name: str) -> bool:
        return os.environ.get("FOUNDRY_TEST_REUSE") == "1" and (self.folder / f"{name}.log").exists()

    def _run(
        self,
        name: str,
        mode: str,
        arguments: Sequence[str],
        archive: str,
        after: str,
        env: Mapping[str, str],
        gpu: int,
    ) -> None:
        if after:
            self._threads[after].join()
        program = [sys.executable, "-m", self._module, "--json", str(self.folder / f"{name}.json")]
        program += [*self._common, *arguments]
        if mode != "native":
            program = [sys.executable, "-m", "foundry", "run", f"--{mode}", "--archive", archive, "--", *program]
        with self._slots[gpu], (self.folder / f"{name}.log").open("w") as log:
            try:
                self._codes[name] = subprocess.run(
                    program,
                    env={**os.environ, **env},
                    stdout=log,
                    stderr=log,
                    timeout=self._timeout_s,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                self._codes[name] = f"none: it was stopped after {self._timeout_s} s"

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The results of a run; fails with the end of its log."""
        self._threads[name].join()
        path = self.folder / f"{name}.json"
        if self._codes[name] != 0 or not path.exists():
            pytest.fail(f"{name} ended with code {self._codes[name]}:\n" + "\n".join(self.log(name).splitlines()[-40:]))
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def log(self, name: str) -> str:
        """What a run has printed."""
        self._threads[name].join()
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def archive(self, name: str) -> str:
        """Where an archive of that name is."""
        return str(self.folder / f"{name}.fdry")

    def join(self) -> None:
        """Until every run has ended."""
        for thread in list(self._threads.values()):
            thread.join()


# Where a fault is put: into the largest of these files.
PLACES = {"truncated": "rank_0/*.fdry", "flipped": "rank_0/*.fdry", "image": "images/*", "kernels": "rank_0/attached.*"}


def damage(archive: str, copy: str, how: str) -> None:
    """A copy of an archive with one fault: "truncated" or "flipped" graphs, or one flipped byte in the largest "image" or
    in compiled "kernels"."""
    if os.path.isdir(copy):  # of a run that is judged again
        return
    shutil.copytree(archive, copy)
    largest = max(Path(copy).glob(PLACES[how]), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    if how == "truncated":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 1
    os.chmod(largest, 0o644)
    largest.write_bytes(content)
