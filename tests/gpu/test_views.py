"""Re-seating two weights in each other's place, with something that still means where they landed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Done, Runner

PROGRAM = [str(Path(__file__).parent / "programs" / "views.py")]


@pytest.mark.parametrize("keep", ["nothing", "view", "parameter"])
def test_views_move_with_their_tensors(shared_runner: Runner, saved: Done, keep: str) -> None:
    assert saved.code == 0, saved.output
    done = shared_runner.load(PROGRAM, "--swap", "--keep", keep)
    assert done.code == 0, done.output
    results = done.results
    assert results["source"] == "restored" and sorted(results["reseated"]) == ["a", "b"], results
    assert results["weights"] and results["right"], results
    assert results.get("views", [True]) == [True] * len(results.get("views", [True])), results


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        ("cpp", "tensor 'a' must leave its place 0x"),
        ("table", "tensor 'table' holds its address"),
    ],
)
def test_what_cannot_move_is_refused(shared_runner: Runner, saved: Done, keep: str, words: str) -> None:
    assert saved.code == 0, saved.output
    done = shared_runner.load(PROGRAM, "--swap", "--keep", keep)
    assert done.code == 0, done.output
    results = done.results
    assert results["source"] == "native" and results["reseated"] == [], results
    assert any(words in sentence for sentence in results["differences"]), results
    assert results["weights"] and results["right"], results
