"""Golden runs and exports with PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Done, Runner

PROGRAM = [str(Path(__file__).parent / "programs" / "golden.py")]
GRAPHS = ["decode", "random", "count", "scatter"]


def test_save_records_golden_runs_and_leaves_no_trace(saved: Done) -> None:
    assert saved.code == 0, saved.output
    results = saved.results
    assert results["outcome"] == "saved" and results["golden"] == GRAPHS and not results["left_out"]
    assert results["warnings"] == []
    # Two warm-ups; capture runs nothing, and the replay that looks for random numbers counts once.
    assert results["count"] == [3.0] * 8
    assert results["hidden"] == [0.5, 0.5] and results["reads_export"]


def test_restored_graphs_pass(saved: Done, loaded: Done) -> None:
    assert loaded.code == 0, loaded.output
    verdicts = loaded.results["verdicts"]
    assert {name: verdicts[name][0] for name in ("decode", "random", "count")} == dict.fromkeys(
        ("decode", "random", "count"), "equal"
    ), verdicts
    assert verdicts["scatter"][0] in ("equal", "within spread"), verdicts
    assert loaded.results["outcome"] == "restored" and not loaded.results["fell_back"]


def test_verifying_leaves_no_trace(loaded: Done) -> None:
    assert loaded.results["count"] == [0.0] * 8 and loaded.results["cache"] == [0.0, 0.0]


def test_export_is_handed_back(loaded: Done) -> None:
    assert loaded.results["hidden_made"] is False
    assert loaded.results["hidden"] == [0.5, 0.5] and loaded.results["reads_export"]


def test_other_weights_are_noticed(shared_runner: Runner, saved: Done) -> None:
    assert saved.code == 0, saved.output
    done = shared_runner.load(PROGRAM, "--scale", "1.5")
    assert done.code == 0, done.output
    verdicts = done.results["verdicts"]
    assert verdicts["decode"][0] == "differs" and verdicts["random"][0] == "equal"
    assert list(done.results["fell_back"]) == ["decode"]


def test_command(shared_runner: Runner, saved: Done) -> None:
    assert saved.code == 0, saved.output
    out = shared_runner.folder / "verify.json"
    program = [*PROGRAM, "--load", "--archive", str(shared_runner.archive), "--json", str(out)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "foundry",
            "verify",
            "--json",
            str(shared_runner.archive),
            "--",
            sys.executable,
            *program,
        ],
        env={**os.environ, "LD_PRELOAD": ""},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [verdict["graph"] for verdict in json.loads(done.stdout)["verdicts"]] == GRAPHS
