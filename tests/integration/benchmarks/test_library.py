"""The benchmarks' driver loop and Restorer on an archive of the mini engine, on the simulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import instructions, sizes, tables
from foundry.recipes import simulated

DEVICE = "h100"

# A context as the programs have one, then the trials that need no framework.
TRIALS = """
import ctypes, json, sys
from benchmarks import library
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
archive, trials = sys.argv[1], json.loads(sys.argv[2])
print(json.dumps([getattr(library, name)(archive, **options) for name, options in trials]))
"""


def run(archive: Path, *trials: tuple[str, dict[str, int]]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", TRIALS, str(archive), json.dumps(trials)],
        capture_output=True, text=True, timeout=120, check=False, env=simulated.environment(os.environ, DEVICE),
    )  # fmt: skip


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "a"
    command = [sys.executable, "-m", "foundry", "run", "--save", "--", sys.executable, "-m"]
    done = subprocess.run(
        [*command, "foundry.recipes.mini_decode", "--save", "--archive", str(path)],
        capture_output=True, text=True, timeout=120, check=False, env=simulated.environment(os.environ, DEVICE),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def test_every_spread_handles_the_same_graphs(archive: Path) -> None:
    trials: list[tuple[str, dict[str, int]]] = [
        ("driver_loop", {}),
        ("driver_loop", {"threads": 2, "image_threads": 3}),
        ("driver_loop", {"by_kernel": 1}),
        ("driver_loop", {"edges_with_nodes": 1, "passes": 3}),
        ("restore", {}),
        ("restore", {"graph_threads": 3, "grow_heaps": 0}),
        ("restore", {"image_threads": 2, "graph_threads": 1}),
    ]
    # The mini engine's own graphs have copies, which the loop leaves out.
    size = {"graphs": 5, "nodes": 30}
    done = run(archive, *((name, {**size, **options}) for name, options in trials))
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len({(answer["graphs"], answer["nodes"], answer["skipped"]) for answer in answers}) == 1
    assert answers[0]["graphs"] > 0 and answers[0]["nodes"] > 0
    assert [len(answer["passes"]) for answer in answers[:4]] == [2, 2, 2, 3]
    for answer in answers[:4]:
        assert all(one["wall"] >= one["instantiate"] > 0 for one in answer["passes"][:1])
    assert all(answer["wall"] >= answer["first"] > 0 for answer in answers[4:])


def test_synthetic_graphs_have_the_size_that_was_asked_for(archive: Path) -> None:
    size = {"graphs": 5, "nodes": 30}
    done = run(archive, ("restore", size), ("driver_loop", size))
    assert done.returncode == 0, done.stderr
    for answer in json.loads(done.stdout):
        assert (answer["graphs"], answer["nodes"]) == (5, 150)


def test_graphs_are_built_and_read_again(archive: Path) -> None:
    size = {"graphs": 5, "nodes": 30}
    done = run(archive, ("snapshot", size), ("snapshot", {**size, "image_threads": 4}))
    assert done.returncode == 0, done.stderr
    for answer in json.loads(done.stdout):
        assert (answer["graphs"], answer["nodes"]) == (5, 150)
        assert answer["ms"] > 0 and answer["ms a graph"] == pytest.approx(answer["ms"] / 5, abs=1e-3)
        assert {"type", "parameters", "priority"} <= answer["ns"].keys()
    done = run(archive, ("snapshot", {}))
    assert done.returncode == 1 and "no graph of kernels alone" in done.stderr


def test_an_archive_that_is_none_is_an_error(tmp_path: Path) -> None:
    for trial in ("driver_loop", "restore", "snapshot"):
        done = run(tmp_path / "absent", (trial, {}))
        assert done.returncode == 1 and "RuntimeError" in done.stderr and "absent" in done.stderr


def test_tables_tell_median_and_spread() -> None:
    runs: list[dict[str, Any]] = [{"wall": 3.0, "name": "x", "once": 1}, {"wall": 1.0}, {"wall": 8.0}]
    rows = {"loop (3)": tables.summary(runs)}
    assert rows["loop (3)"] == {"wall": {"median": 3.0, "least": 1.0, "most": 8.0}}
    assert tables.lines("loops", rows, ["wall", "absent"]) == ["loops     wall", "loop (3)  3.0 [1.0..8.0]"]


def test_saves_are_compared_with_the_median_native_start() -> None:
    steps = {"session": 10.0, "engine": 40.0, "graphs": 2000.0, "end": 150.0}
    report = {"graphs": 50, "milliseconds": steps | {"wait": 9.0}}
    report["report"] = {"milliseconds": {"write": 90.0, "publish": 10.0, "write.snapshot": 25.0}}
    native = [{**dict.fromkeys(steps, 0.0), "engine": 40.0, "graphs": ms} for ms in (1710.0, 1000.0, 9000.0)]
    found = sizes.save(report, native)
    assert found["start without writing / native"] == pytest.approx(2100 / 1750)
    assert found["snapshot ms a graph"] == 0.5


def test_an_archives_bytes_by_file(tmp_path: Path) -> None:
    for name, count in {"foundry.json": 3, "images/a": 5, "images/b": 7, "rank_0/graphs.fdry": 11}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * count)
    assert sizes.archive(str(tmp_path)) == {"foundry.json": 3, "images": 12, "rank_0/graphs.fdry": 11, "all": 26}


def test_callgrinds_sum_is_read_and_nothing_is_no_sum() -> None:
    head = "# callgrind format\nversion: 1\nevents: Ir\n"
    assert instructions.total(f"{head}summary: 123456\nfn=(1)\n", "parse") == 123456
    assert instructions.total(f"{head}fn=(1)\n\ntotals: 7\n", "parse") == 7
    for text in (head, f"{head}summary: 0\n", ""):
        with pytest.raises(RuntimeError, match="counted nothing"):
            instructions.total(text, "parse")


def test_a_program_that_cannot_be_counted_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert instructions.main([str(tmp_path / "absent")]) == 1
    assert capsys.readouterr().err
