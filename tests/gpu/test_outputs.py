"""Outputs of restored graphs: nesting, types, aliasing and lifetime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Done

PROGRAM = [str(Path(__file__).parent / "programs" / "outputs.py")]


def test_native_outputs_are_right(saved: Done) -> None:
    assert saved.code == 0, saved.output
    assert saved.results["wrong"] == [] and saved.results["outcome"] == "saved"


def test_output_that_cannot_be_kept_leaves_its_graph_out(saved: Done) -> None:
    (sentence,) = saved.results["left_out"]["odd"]
    assert "outputs[1] is a builtins.object" in sentence
    assert list(saved.results["left_out"]) == ["odd"]


def test_restored_outputs_are_right(loaded: Done) -> None:
    assert loaded.code == 0, loaded.output
    assert loaded.results["wrong"] == []
    assert loaded.results["sources"] == {"all": "restored", "plain": "restored", "odd": "native"}


def test_sessions_do_not_leak(loaded: Done) -> None:
    assert loaded.results["session_gone"] is True
