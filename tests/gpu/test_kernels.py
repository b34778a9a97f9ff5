"""Kernels of torch, cuBLAS, cuDNN, Triton and torch.compile: every graph restored, equal or within the native spread."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Done

PROGRAM = [str(Path(__file__).parent / "programs" / "kernels.py")]


def test_every_graph_is_saved(saved: Done) -> None:
    assert saved.code == 0, saved.output
    assert saved.results["outcome"] == "saved" and saved.results["left_out"] == {}
    print(saved.results["warnings"], "repeat bit for bit natively:", saved.results["repeatable"])


def test_every_graph_is_restored(loaded: Done) -> None:
    assert loaded.code == 0, loaded.output
    assert set(loaded.results["sources"].values()) == {"restored"}, loaded.results


def test_results_are_those_of_native_replays(loaded: Done, saved: Done) -> None:
    verdicts = loaded.results["verdicts"]
    print(verdicts)
    assert {name: v for name, v in verdicts.items() if v not in ("equal", "within native spread")} == {}
    assert [name for name in saved.results["repeatable"] if verdicts[name] != "equal"] == []
