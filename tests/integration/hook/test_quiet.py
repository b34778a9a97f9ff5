"""Programs without CUDA run under the hook as if it were absent: output, exit code, files, system calls."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.integration.hook.support import Compiler, environment

PYTHON = [
    sys.executable,
    "-s",
    "-c",
    "import json, ctypes; print(json.dumps(sorted(vars(json)))[:20]); raise SystemExit(3)",
]
NO_CUDA = "import ctypes; print(hasattr(ctypes.CDLL(None), 'cuMemAlloc_v2')); ctypes.CDLL('libcuda.so.1')"
COMMANDS = {
    "sh": ["sh", "-c", "true"],
    "false": ["sh", "-c", "false"],
    "gcc": ["gcc", "--version"],
    "missing": ["sh", "-c", "no-such-command"],
    "python": PYTHON,
}
# How much memory Python's own allocator asks for depends on where the kernel puts it.
REPEATABLE = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONMALLOC": "malloc"}
MPROTECT, MMAP = "10", "9"
# What the loader does for one more library: x86-64 numbers of openat, read, fstat, newfstatat, pread64, close.
LOADING = {"257", "0", "5", "262", "17", "3", MMAP, MPROTECT}


@pytest.fixture(scope="session")
def tracer(compiler: Compiler) -> Path:
    return compiler.build("trace", ["trace.c"])


def traced(
    tracer: Path, log: Path, command: list[str], hook: Path, preload: bool, libraries: Path | None, **variables: str
) -> tuple[int, str, str, list[str]]:
    env = environment([], libraries, **REPEATABLE, **variables)
    env["TRACE_PRELOAD" if preload else "TRACE_IDLE"] = str(hook)
    done = subprocess.run([str(tracer), str(log), *command], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode not in (125, 126), "this machine does not let a process be traced"
    return done.returncode, done.stdout, done.stderr, log.read_text().splitlines()


LIBC_STARTS = "302"  # prlimit64: relocation is done


def differences(plain: list[str], under: list[str], hook: Path) -> list[str]:
    """What the run under the hook does otherwise, but for what the loader does for one more library."""
    start = under.index(f"257 {hook}")
    end = start + next(i for i, call in enumerate(under[start:]) if call == "3")
    assert {call.split()[0] for call in under[start : end + 1]} <= LOADING, under[start : end + 1]
    under = under[:start] + under[end + 1 :]
    border_plain, border_under = plain.index(LIBC_STARTS), under.index(LIBC_STARTS)
    before_plain, before_under = plain[:border_plain], under[:border_under]
    # Its relocated data is protected, and the loader's own heap may need another page.
    extra = Counter(before_under) - Counter(before_plain)
    found = [call for call, times in extra.items() if call not in (MPROTECT, MMAP) or times > 1]
    found += (Counter(before_plain) - Counter(before_under)).elements()
    quiet = (MPROTECT, MMAP)
    if [c for c in before_plain if c not in quiet] != [c for c in before_under if c not in quiet]:
        found.append("order")
    found += unified_diff(plain[border_plain:], under[border_under:], lineterm="", n=0)
    return found


@pytest.mark.parametrize("libcuda", [False, True])
@pytest.mark.parametrize("mode", [None, "off", "save", "load", "auto"])
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_changes(
    command: str, mode: str | None, libcuda: bool, tracer: Path, fake: Path, hook: Path, tmp_path: Path
) -> None:
    libraries = fake if libcuda else None
    variables = {} if mode is None else {"FOUNDRY_MODE": mode}
    plain = traced(tracer, tmp_path / "plain", COMMANDS[command], hook, False, libraries, **variables)
    under = traced(tracer, tmp_path / "under", COMMANDS[command], hook, True, libraries, **variables)
    assert under[:3] == plain[:3]
    assert len(plain[3]) > 20
    assert differences(plain[3], under[3], hook) == []


def test_the_comparison_sees_one_more_call(tracer: Path, hook: Path, tmp_path: Path) -> None:
    plain = traced(tracer, tmp_path / "plain", ["sh", "-c", "true"], hook, False, None)
    other = traced(tracer, tmp_path / "other", ["sh", "-c", "cd /"], hook, True, None)
    assert any("80" in line for line in differences(plain[3], other[3], hook))  # chdir


def test_python_that_asks_for_cuda_where_there_is_none(hook: Path) -> None:
    command = [sys.executable, "-c", NO_CUDA]
    plain = subprocess.run(command, env=environment([]), capture_output=True, text=True)
    under = subprocess.run(command, env=environment([hook], FOUNDRY_MODE="save"), capture_output=True, text=True)
    assert (under.returncode, under.stdout, under.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    if "cannot open shared object file" in plain.stderr:
        assert plain.stdout == "False\n"
