"""The fake core and the fake framework under the plugins' common parts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Stand-ins, whatever pytest's import mode.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
sys.path.insert(0, str(Path(__file__).parent))

import fake_core  # noqa: E402

fake_core.install()

from fake_torch import FakeTorch, torch  # noqa: E402, F401


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("MODE", "ON_MISMATCH", "VERIFY", "VERIFY_REPORT", "GOLDEN"):
        monkeypatch.delenv(f"FOUNDRY_{variable}", raising=False)
    monkeypatch.setenv("FOUNDRY_ARCHIVE", str(tmp_path / "engine.fdry"))


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    import foundry.api

    fake_core.new_process()
    sys.modules.pop("foundry.engines.common.engine_graph", None)  # it holds on to a PyTorch
    yield
    sys.modules.pop("foundry.engines.common.engine_graph", None)
    foundry.api._active = None
