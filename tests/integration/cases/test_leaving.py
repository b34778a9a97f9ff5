"""The process ends or forks while graphs are restored: never a hang, never a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.story.support import GRAPHS, Place

SLOW = "cuGraphInstantiateWithFlags:*:delay=400"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("leaving"), "a100-40gb")
    place.save()
    return place


def run(place: Place, what: str, save: bool = False, archive: Path | None = None, **env: str) -> tuple[int, Any]:
    """Exit code and results of one process; nothing may be printed."""
    results = place.folder / "leaving.json"
    results.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.cases.leaving", what, str(archive or place.archive), str(results)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=place.environment(save, PYTHONWARNINGS="ignore", **env),  # of forks of processes with threads
    )
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(results.read_text())


def test_exit_while_restoring(place: Place) -> None:
    code, found = run(place, "exit", FOUNDRY_SIM_FAULT=SLOW)
    assert code == 5 and found["sources"] == ["pending"]
    # This one, and one of the simulator's for a stream. The restore has more.
    assert found["threads"] <= 2, "threads of the restore are running when the driver says good-bye"


def refused(child: dict[str, str], attempts: int) -> None:
    assert len(child) == attempts
    for what, sentence in child.items():
        assert sentence.startswith("state: this process is a fork"), (what, sentence)


@pytest.mark.parametrize("what", ["fork", "fork while restoring"])
def test_fork(place: Place, what: str) -> None:
    """The child is told, and ends; the parent goes on."""
    code, found = run(place, what, FOUNDRY_SIM_FAULT=SLOW if what != "fork" else "")
    assert code == 0
    refused(found["child"], 8)
    assert found["code"] == 7
    assert found["outcome"] == "restored" and found["restored"] == GRAPHS and found["equal"]


def test_fork_while_saving(place: Place, tmp_path: Path) -> None:
    """The child publishes nothing, the parent does."""
    code, found = run(place, "fork while saving", save=True, archive=tmp_path / "other.fdry")
    assert code == 0 and found["code"] == 7 and found["outcome"] == "saved" and found["equal"]
    refused(found["child"], 7)
    assert (tmp_path / "other.fdry" / "foundry.json").exists()
