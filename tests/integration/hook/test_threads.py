"""Many threads at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.hook.support import Compiler, environment, run


@pytest.mark.parametrize("mode", ["off", "save", "auto"])
def test_threads(mode: str, compiler: Compiler, hook: Path, sim: Path, elf_sm80: Path) -> None:
    program = compiler.build("threads", ["threads.c"], f"-L{sim}", "-l:libcuda.so.1", "-pthread", "-ldl")
    env = environment([hook], sim, FOUNDRY_MODE=mode, FOUNDRY_SIM_DEVICE="a100-40gb")
    assert run([program, elf_sm80, "8", "25"], env).stdout == "ok\n"
