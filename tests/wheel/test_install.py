"""The wheel installed into a fresh environment: the commands, and SAVE and LOAD on the simulated driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.wheel import unpacked


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=cwd)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel in it, as pip put it there."""
    place = tmp_path_factory.mktemp("environment")
    run(os.environ["PYTHON"], "-m", "venv", "--without-pip", place, env=unpacked.environment())
    program = place / "bin" / "python"
    # The pip of the interpreter that runs the tests; what the wheel requires is found through PYTHONPATH, and is plain
    # Python that serves every version.
    outer = {
        **unpacked.environment(),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        program,
        "install",
        "--no-deps",
        "--no-compile",
        unpacked.WHEEL,
        env=outer,
    )
    return program


@pytest.fixture
def env() -> dict[str, str]:
    """An environment in which nothing of the source tree can be imported."""
    kept = {name: os.environ[name] for name in ("PATH", "TEST_TMPDIR") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": unpacked.environment()["PYTHONPATH"],
        "HOME": os.environ.get("TEST_TMPDIR", "/tmp"),
        "LC_ALL": "C.UTF-8",
    }


def test_import_comes_from_the_environment(python: Path, env: dict[str, str], tmp_path: Path) -> None:
    out = run(python, "-c", "import foundry, foundry._core; print(foundry._core.__file__)", env=env, cwd=tmp_path)
    assert out.startswith(str(python.parents[1]))


def test_doctor(python: Path, env: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run([python.parent / "foundry", "doctor"], text=True, capture_output=True, env=env, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("device", ["h100", "a100-40gb"])
def test_quickstart(python: Path, env: dict[str, str], tmp_path: Path, device: str) -> None:
    out = run(python, "-m", "foundry.recipes.quickstart", "--simulated", "--device", device, env=env, cwd=tmp_path)
    assert "Every graph was restored and computes the same." in out
