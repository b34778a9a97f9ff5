"""Another interposer is preloaded as well: both work, in either order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.hook.support import Compiler, environment, run_python

SCRIPT = """
from client import *
cuda, probe = Driver("dlsym"), Probe(sys.argv[1])
text = ctypes.create_string_buffer(b"//\\n.version 8.0\\n")
module = ctypes.c_void_p()
program = ctypes.CDLL(sys.argv[2]) if len(sys.argv) > 2 else cuda.library
result = program.load(ctypes.byref(module), text) if len(sys.argv) > 2 else cuda.call("cuModuleLoadData", ctypes.byref(module), text)
state = probe.state()
answer({"result": result, "driver": cuda.library.fake_calls(b"cuModuleLoadData", 0), "other": ctypes.CDLL(None).other_calls(),
        "images": None if state is None else len(state["images"])})
"""

LINKED = """
int cuModuleLoadData(void** module, const void* image);
__attribute__((visibility("default"))) int load(void** module, const void* image) { return cuModuleLoadData(module, image); }
"""


@pytest.fixture(scope="session")
def linked(compiler: Compiler, fake: Path) -> Path:
    """A library linked with libcuda, whose calls go through the exported symbols."""
    source = compiler.folder / "load.c"
    source.write_text(LINKED)
    return compiler.library("load.so", [str(source)], f"-L{fake}", "-l:libcuda.so.1")


def preloads(order: str, hook: Path, other: Path) -> list[Path]:
    return {"hook first": [hook, other], "hook last": [other, hook], "alone": [other]}[order]


@pytest.mark.parametrize("mode", ["off", "save"])
@pytest.mark.parametrize("order", ["alone", "hook first", "hook last"])
def test_exported_symbols_pass_both(
    order: str, mode: str, linked: Path, compiler: Compiler, fake: Path, probe: Path, hook: Path
) -> None:
    other = compiler.library("other_interposer.so", ["other_interposer.c"])
    libcuda = fake / "libcuda.so.1"
    env = environment([*preloads(order, hook, other), libcuda], fake, FOUNDRY_MODE=mode)
    images = 1 if mode == "save" and order != "alone" else None
    assert run_python(SCRIPT, env, probe, linked) == {"result": 0, "driver": 1, "other": 1, "images": images}


@pytest.mark.parametrize("mode", ["off", "save"])
@pytest.mark.parametrize("order", ["alone", "hook first", "hook last"])
def test_another_override_of_dlsym(
    order: str, mode: str, compiler: Compiler, fake: Path, probe: Path, hook: Path
) -> None:
    other = compiler.library("other_dlsym.so", ["other_dlsym.c"])
    got = run_python(SCRIPT, environment(preloads(order, hook, other), fake, FOUNDRY_MODE=mode), probe)
    # An override before ours that asks libc for its dlsym by version passes over ours: nothing breaks, nothing is seen.
    seen = {"hook first": 1, "hook last": 0, "alone": None}[order]
    assert got == {"result": 0, "driver": 1, "other": 1, "images": seen if mode == "save" else None}


def test_another_interposer_without_libcuda_finds_nothing_behind(compiler: Compiler, hook: Path) -> None:
    """An interposer before the hook must not find the hook's export where there is no driver."""
    script = """
from client import *
other = ctypes.CDLL(None)
module = ctypes.c_void_p()
answer([other.cuModuleLoadData(ctypes.byref(module), b""), other.other_calls()])
"""
    other = compiler.library("other_interposer.so", ["other_interposer.c"])
    for order in ("alone", "hook first", "hook last"):
        got: Any = run_python(script, environment(preloads(order, hook, other), FOUNDRY_MODE="save"))
        assert got == [999, 1], order
