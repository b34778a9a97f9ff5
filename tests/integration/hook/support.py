"""What the tests of the hook share: small C programs made for a test, and children that run under LD_PRELOAD."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def product(variable: str) -> Path:
    """A file that the build hands over by environment variable."""
    path = Path(os.environ[variable]).absolute()
    assert path.is_file(), f"{variable}={path}"
    return path


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
