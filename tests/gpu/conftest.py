"""GPU tests: every case runs in processes of its own, as SAVE (under the hook) and LOAD (nothing preloaded) do.

    python -m pytest tests/gpu

works from an installed wheel. Without a GPU, PyTorch or the hook the tests are skipped with the reason.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# An installed Foundry counts, not the sources that the current directory may happen to be: they have no extension.
ROOT = Path(__file__).absolute().parents[2]
if not list((ROOT / "foundry").glob("_core*.so")):
    sys.path[:] = [path for path in sys.path if Path(path or ".").absolute() != ROOT]
    os.environ["PYTHONSAFEPATH"] = "1"


@dataclass
class Done:
    """A process that ended: its code, what it printed, and the results that it wrote."""

    code: int
    output: str
    results: dict[str, Any]


@functools.cache
def _reason() -> str | None:
    try:
        from foundry.cli import hook, probe
    except ImportError as problem:
        return f"Foundry is not installed: {problem}"
    answer = probe.ask(framework=True)
    if answer.problem is not None:
        return answer.problem
    if not answer.devices:
        return "the driver sees no GPU"
    if not (answer.framework or "").startswith("torch "):
        return answer.framework if answer.framework != "none" else "PyTorch is not installed"
    try:
        hook.hook_library(hook.target_for(answer.devices, os.environ), os.environ)
    except hook.NoHook as problem:
        return str(problem)
    return None


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    """Skips where the tests cannot run."""
    reason = _reason()
    if reason is not None:
        pytest.skip(reason)


class Runner:
    """Starts SAVE and LOAD processes around one archive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archive = folder / "decode.fdry"

    def save(self, program: Sequence[str], *arguments: str, env: Mapping[str, str] | None = None) -> Done:
        """A program with --save under `foundry run --save`."""
        command = [sys.executable, "-m", "foundry", "run", "--save", "--", sys.executable, *program]
        return self._run("save", command, arguments, env)

    def load(self, program: Sequence[str], *arguments: str, env: Mapping[str, str] | None = None) -> Done:
        """A program with --load; whatever this process has preloaded is taken away."""
        return self._run("load", [sys.executable, *program], arguments, {"LD_PRELOAD": "", **(env or {})})

    def _run(self, mode: str, command: Sequence[str], arguments: Sequence[str], env: Mapping[str, str] | None) -> Done:
        results = self.folder / f"{mode}.json"
        results.unlink(missing_ok=True)
        done = subprocess.run(
            [*command, f"--{mode}", "--archive", str(self.archive), "--json", str(results), *arguments],
            env={**os.environ, "FOUNDRY_LOG": "1", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=500,
            check=False,
        )
        document = json.loads(results.read_text()) if results.exists() else {}
        return Done(done.returncode, done.stdout, document)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """An archive of this test's own."""
    return Runner(tmp_path)


@pytest.fixture(scope="module")
def shared_runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """An archive that the tests of a module share."""
    return Runner(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def saved(shared_runner: Runner, request: pytest.FixtureRequest) -> Done:
    """SAVE of the module's PROGRAM."""
    return shared_runner.save(request.module.PROGRAM)


@pytest.fixture(scope="module")
def loaded(shared_runner: Runner, saved: Done, request: pytest.FixtureRequest) -> Done:
    """LOAD of what `saved` published."""
    assert saved.code == 0, saved.output
    return shared_runner.load(request.module.PROGRAM)
