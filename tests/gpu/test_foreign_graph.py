"""Graphs that the program captures without Foundry, beside a session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Runner

PROGRAM = [str(Path(__file__).parent / "programs" / "foreign_graph.py")]


@pytest.mark.parametrize("when", ["before", "inside", "never"])
def test_its_workspace_stays(runner: Runner, when: str) -> None:
    """The session's graphs are saved and restored all the same."""
    for mode, source in (("save", "native"), ("load", "restored")):
        done = getattr(runner, mode)(PROGRAM, "--when", when)
        assert done.code == 0, done.output
        assert done.results["intact"] and done.results["right"], done.results
        assert done.results["source"] == source and not done.results["left_out"], done.results
        if when != "never":
            assert done.results["workspace"] > 0, "without a workspace this tests nothing"
