"""Graphs that a program captures with plain PyTorch code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Done, Runner

PROGRAM = [str(Path(__file__).parent / "programs" / "own_captures.py")]
GRAPHS = ["decode/64", "decode/8", "random"]


def test_save(saved: Done) -> None:
    assert saved.code == 0, saved.output
    assert saved.results["saved"] == GRAPHS and not saved.results["left_out"]
    assert all(saved.results["computed"][name][1] for name in GRAPHS[:2])
    assert saved.results["computed"]["event"] == [True, True, True] and saved.results["warnings"] == []


def test_load_captures_nothing(saved: Done, loaded: Done) -> None:
    assert loaded.code == 0, loaded.output
    assert loaded.results["restored"] == GRAPHS and loaded.results["captures"] == 0
    assert loaded.results["computed"] == saved.results["computed"]


def test_graph_that_the_archive_lacks(shared_runner: Runner, saved: Done) -> None:
    """Captured in PyTorch's default mode, beside restored graphs."""
    assert saved.code == 0, saved.output
    done = shared_runner.load(PROGRAM, "--more")
    assert done.code == 0, done.output
    assert done.results["captures"] == 1 and list(done.results["fell_back"]) == ["more"]
    assert done.results["computed"] == saved.results["computed"]
