"""Shared by the Python unit tests: the fake core in place of the real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The tests' own modules, whatever pytest's import mode.
sys.path.insert(0, str(Path(__file__).parent))

import fake_core  # noqa: E402

fake_core.install()

from session_world import World  # noqa: E402


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for variable in (
        "FOUNDRY_MODE",
        "FOUNDRY_ARCHIVE",
        "FOUNDRY_ON_MISMATCH",
        "FOUNDRY_COMPACT",
        "FOUNDRY_EXEC_BUDGET",
        "FOUNDRY_GOLDEN",
        "FOUNDRY_VERIFY",
        "FOUNDRY_VERIFY_REPORT",
    ):
        monkeypatch.delenv(variable, raising=False)
    fake_core.new_process()
    yield World(tmp_path / "decode.fdry")
