"""dlsym finds what it finds without the hook, for every caller and handle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.hook.support import Compiler, environment, run

HOOK = "libcuda_hook.so"
INTERPOSED = ("'cuMemAlloc_v2'", "'cuModuleLoadData'")


@pytest.fixture(scope="session")
def program(compiler: Compiler) -> Path:
    return compiler.build("lookups", ["lookups.c"], "-rdynamic", "-ldl")


@pytest.fixture(scope="session")
def program_with_libcuda(compiler: Compiler, fake: Path) -> Path:
    return compiler.build(
        "lookups_linked", ["lookups.c"], "-rdynamic", "-Wl,--no-as-needed", f"-L{fake}", "-l:libcuda.so.1", "-ldl"
    )


@pytest.fixture(scope="session")
def plain(compiler: Compiler) -> Path:
    """A library that knows nothing of CUDA."""
    return compiler.library("plain.so", ["lookups.c"], "-DPLUGIN=1")


@pytest.fixture(scope="session")
def with_libcuda(compiler: Compiler, fake: Path) -> Path:
    """A library linked with libcuda: where it is opened RTLD_LOCAL, it alone sees libcuda."""
    return compiler.library(
        "with_libcuda.so", ["lookups.c"], "-DPLUGIN=2", "-Wl,--no-as-needed", f"-L{fake}", "-l:libcuda.so.1"
    )


def lines(
    command: list[str | Path], hook: Path, libraries: Path | None, **variables: str
) -> tuple[list[str], list[str]]:
    without = run(command, environment([], libraries))
    under = run(command, environment([hook], libraries, **variables))
    assert under.stderr == without.stderr == ""
    before, after = without.stdout.splitlines(), under.stdout.splitlines()
    assert len(before) == len(after) > 20
    return before, after


@pytest.mark.parametrize("mode", ["off", "save", "load", "auto"])
def test_without_libcuda_nothing_changes(mode: str, program: Path, plain: Path, hook: Path) -> None:
    before, after = lines([program, plain, plain], hook, None, FOUNDRY_MODE=mode)
    assert before == after
    assert "program RTLD_DEFAULT 'cuMemAlloc_v2': nothing, an error" in after
    assert "plain.so RTLD_NEXT 'marker': nothing, an error" in after


@pytest.mark.parametrize("mode", ["off", "save"])
def test_libcuda_in_the_global_scope(
    mode: str, program_with_libcuda: Path, plain: Path, fake: Path, hook: Path
) -> None:
    before, after = lines([program_with_libcuda, plain, fake / "libcuda.so.1"], hook, fake, FOUNDRY_MODE=mode)
    for old, new in zip(before, after, strict=False):
        interposed = any(name in new for name in INTERPOSED) and "nothing" not in old
        by_handle = " libcuda.so.1 '" in old
        if interposed and not (by_handle and mode == "off"):
            assert old.endswith("libcuda.so.1") and new == old.replace(": libcuda.so.1", f": {HOOK}")
        else:
            assert old == new
    assert f"program RTLD_DEFAULT 'cuMemAlloc_v2': {HOOK}" in after
    assert f"plain.so RTLD_DEFAULT 'cuMemAlloc_v2': {HOOK}" in after


@pytest.mark.parametrize("mode", ["off", "save"])
def test_libcuda_in_the_scope_of_one_library(
    mode: str, program: Path, plain: Path, with_libcuda: Path, fake: Path, hook: Path
) -> None:
    before, after = lines([program, plain, with_libcuda, plain], hook, fake, FOUNDRY_MODE=mode)
    for old, new in zip(before, after, strict=False):
        interposed = any(name in new for name in INTERPOSED) and "nothing" not in old
        behind_us = " RTLD_NEXT '" in old  # what comes after a library behind the hook is not the hook
        if interposed and mode != "off" and not behind_us:
            assert old.startswith(("with_libcuda.so", "program with_libcuda.so")), old
            assert new == old.replace(": libcuda.so.1", f": {HOOK}")
        else:
            assert old == new
    assert "plain.so RTLD_DEFAULT 'cuMemAlloc_v2': nothing, an error" in after
    found = HOOK if mode == "save" else "libcuda.so.1"
    assert f"with_libcuda.so RTLD_DEFAULT 'cuMemAlloc_v2': {found}" in after


def test_hook_is_off_for_a_child_that_opts_out(program: Path, with_libcuda: Path, fake: Path, hook: Path) -> None:
    before, after = lines([program, with_libcuda], hook, fake, FOUNDRY_MODE="save", FOUNDRY_HOOK="0")
    assert before == after
