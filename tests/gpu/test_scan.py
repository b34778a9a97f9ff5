"""The kernels that SAVE looks at memory with say what their version for the host says, in both builds of the hook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Runner

PROGRAM = [str(Path(__file__).parent / "programs" / "scan.py")]


@pytest.mark.parametrize("target", ["", "80"], ids=["build of the device", "build for sm_80"])
def test_the_device_says_what_the_host_says(runner: Runner, target: str) -> None:
    done = runner.save(PROGRAM, env={"FOUNDRY_SM": target} if target else {})
    assert done.code == 0, done.output
    found = done.results
    assert found["on_device"] == [True, False] and found["note"] == "", found
    assert found["differences"] == []
    assert found["zero"] == found["expected_zero"] == [3, 4, 6]
    assert found["equal"] and found["many"]
    assert found["hits"] > 4800
    print(found["ms for 256 MiB"])
