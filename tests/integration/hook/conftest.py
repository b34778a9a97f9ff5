"""Fixtures: the hook, the drivers and images it is tested with, and what is compiled for a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.hook.support import Compiler, product


@pytest.fixture(scope="session")
def hook() -> Path:
    return product("HOOK_SM80")


@pytest.fixture(scope="session")
def hook_sm90() -> Path:
    return product("HOOK_SM90")


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
