"""The fake core, a miniature of vLLM, and processes in which it starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# The tests' own modules, whatever pytest's import mode.
sys.path[:0] = [str(HERE), str(HERE / "site"), str(HERE.parents[1] / "python")]

import fake_core  # noqa: E402

fake_core.install()

from vllm_world import World  # noqa: E402


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for variable in ("MODE", "ARCHIVE", "ON_MISMATCH", "VERIFY", "VERIFY_REPORT"):
        monkeypatch.delenv(f"FOUNDRY_{variable}", raising=False)
    made = World(tmp_path / "vllm.fdry", monkeypatch)
    yield made
    made.forget()
