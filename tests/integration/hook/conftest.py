"""Fixtures: the hook, small C programs and libraries made for a test, and children that run under LD_PRELOAD."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def product(variable: str) -> Path:
    """A file that the build hands over by environment variable."""
    path = Path(os.environ[variable]).absolute()
    assert path.is_file(), f"{variable}={path}"
    return path


@pytest.fixture(scope="session")
def hook() -> Path:
    return product("HOOK_SM80")


@pytest.fixture(scope="session")
def hook_sm90() -> Path:
    return product("HOOK_SM90")


@dataclass(frozen=True)
class Compiler:
    folder: Path

    def build(self, name: str, sources: list[str], *options: str) -> Path:
        out = self.folder / name
        if not out.exists():
            out.parent.mkdir(parents=True, exist_ok=True)
            command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", f"-I{ROOT}", "-o", str(out)]
            command += [str(HERE / source) for source in sources] + list(options)
            subprocess.run(command, check=True)
        return out

    def library(self, name: str, sources: list[str], *options: str) -> Path:
        soname = f"-Wl,-soname,{Path(name).name}"
        return self.build(name, sources, "-shared", "-fPIC", "-fvisibility=hidden", soname, *options, "-ldl")


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="session")
def fake(compiler: Compiler) -> Path:
    """Folder with the counting libcuda.so.1 of fake_libcuda.c."""
    return compiler.library("fake/libcuda.so.1", ["fake_libcuda.c", "fake_libcuda_rest.c"]).parent


@pytest.fixture(scope="session")
def probe(compiler: Compiler) -> Path:
    return compiler.library("probe.so", ["probe.c"])


def environment(preload: list[Path], libraries: Path | None = None, **variables: str) -> dict[str, str]:
    """The environment of a child: FOUNDRY_* and LD_* of this process do not reach it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("FOUNDRY_", "LD_", "FAKE_"))}
    if preload:
        env["LD_PRELOAD"] = ":".join(str(path) for path in preload)
    if libraries is not None:
        env["LD_LIBRARY_PATH"] = str(libraries)
    return env | variables


def run(command: list[str | Path], env: dict[str, str], check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(part) for part in command], env=env, capture_output=True, text=True, timeout=120)
    if check:
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def run_python(script: str, env: dict[str, str], *arguments: str | Path) -> Any:
    """Runs a script that has client.py at hand and prints JSON as its last line."""
    prelude = f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
    done = run([sys.executable, "-c", prelude + script, *arguments], env)
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def sim() -> Path:
    """Folder with the simulated driver."""
    return product("SIM").parent


@pytest.fixture(scope="session")
def fatbin() -> Path:
    return product("FATBIN")


@pytest.fixture(scope="session")
def elf_sm80() -> Path:
    return product("ELF_SM80")
