"""Golden runs: recorded by SAVE, replayed by a LOAD that verifies, reported by `foundry verify`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.golden.support import PROGRAM, command, start

GRAPHS = ["decode/4", "decode/1"]
VERIFY = {"FOUNDRY_VERIFY": "1"}
Saved = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    archive = tmp_path_factory.mktemp("golden") / "a"
    return archive, start("save", archive, golden=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    archive = tmp_path_factory.mktemp("plain") / "a"
    return archive, start("save", archive)


def test_save_records_and_leaves_no_trace(saved: Saved, plain: Saved) -> None:
    archive, save = saved
    assert save["outcome"] == "saved" and save["golden"] == GRAPHS and not save["warnings"]
    assert (archive / "rank_0/golden.fdry").stat().st_size > 0
    # Inputs, caches and the counter in the module are as without golden runs.
    for key in ("inputs", "steps", "export", "tokens"):
        assert save[key] == plain[1][key], key
    assert not (plain[0] / "rank_0/golden.fdry").exists()


def test_restored_graphs_compute_the_same(saved: Saved, plain: Saved) -> None:
    archive, save = saved
    load = start("load", archive, env=VERIFY)
    assert load["outcome"] == "restored"
    assert load["verdicts"] == [[graph, "equal", ""] for graph in GRAPHS]
    unverified = start("load", archive)
    assert unverified["verdicts"] == []
    # Verifying leaves no trace either.
    for key in ("inputs", "steps", "export", "tokens", "hidden_after"):
        assert load[key] == unverified[key], key
    assert load["tokens"] == save["tokens"]


def test_other_weights_are_noticed_and_captured_natively(saved: Saved) -> None:
    load = start("load", saved[0], env=VERIFY, tamper=True)
    assert [(graph, verdict) for graph, verdict, _ in load["verdicts"]] == [(graph, "differs") for graph in GRAPHS]
    assert set(load["fell_back"]) == set(GRAPHS) and "does not compute what it did" in load["fell_back"]["decode/1"]
    assert load["tokens"] == load["eager"]
    strict = start("load", saved[0], env={**VERIFY, "FOUNDRY_ON_MISMATCH": "fail"}, tamper=True)
    assert "does not compute what it did" in strict["error"]


@pytest.mark.parametrize(
    ("noise", "verdict"),
    [
        ([0.25, 0.5, 0.0, 0.25], "within spread"),
        ([1.0, 1.125, 1.0, 1.0], "differs"),
        ([1.0, float("nan")], "not comparable"),
    ],
)
def test_spread_of_native_replays_decides(tmp_path: Path, noise: list[float], verdict: str) -> None:
    archive = tmp_path / "a"
    assert start("save", archive, golden=True, noise=noise)["golden"] == GRAPHS
    load = start("load", archive, env=VERIFY)
    found = {graph: (verdict, detail) for graph, verdict, detail in load["verdicts"]}
    assert found["decode/4"][0] == "equal" and found["decode/1"][0] == verdict, found
    assert "float32" in found["decode/1"][1]
    assert bool(load["fell_back"]) is (verdict == "differs")


def test_verify_reads_every_byte(saved: Saved, tmp_path: Path) -> None:
    archive = saved[0]
    done = command("verify", str(archive))
    assert done.returncode == 0 and "2 with a golden run" in done.stdout, done.stdout + done.stderr
    document = json.loads(command("verify", "--json", str(archive)).stdout)
    assert document["golden"] == GRAPHS and sorted(document["graphs"]) == sorted(GRAPHS)
    names = [entry["name"] for entry in document["files"]]
    assert "rank_0/golden.fdry" in names
    for number, name in enumerate(names):
        copy = tmp_path / str(number)
        shutil.copytree(archive, copy)
        whole = (copy / name).read_bytes()
        (copy / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        done = command("verify", str(copy))
        assert done.returncode == 1 and name.rsplit("/", 1)[-1] in done.stderr, (name, done.stderr)
        (copy / name).unlink()
        assert command("verify", str(copy)).returncode == 1
    copy = tmp_path / "more"
    shutil.copytree(archive, copy)
    (copy / "rank_0" / "stray").write_text("x")
    done = command("verify", str(copy))
    assert done.returncode == 1 and "stray" in done.stderr


def verify(archive: Path, *program: str) -> tuple[int, dict[str, Any], str]:
    done = command("verify", "--json", str(archive), "--", sys.executable, *program)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_verify_with_a_program(saved: Saved, tmp_path: Path) -> None:
    archive = saved[0]
    out = str(tmp_path / "out.json")
    code, document, errors = verify(archive, PROGRAM, "load", str(archive), out)
    assert code == 0 and document["problem"] == "", errors
    assert [(v["graph"], v["verdict"]) for v in document["verdicts"]] == [(graph, "equal") for graph in GRAPHS]
    code, document, _ = verify(archive, PROGRAM, "load", str(archive), out, '{"tamper": true}')
    assert code == 1 and {v["verdict"] for v in document["verdicts"]} == {"differs"}
    done = command("verify", str(archive), "--", sys.executable, PROGRAM, "load", str(archive), out)
    assert done.returncode == 0 and "decode/4" in done.stdout and "equal" in done.stdout


def test_verify_says_why_nothing_was_compared(saved: Saved, plain: Saved, tmp_path: Path) -> None:
    archive, out = saved[0], str(tmp_path / "out.json")
    code, document, _ = verify(archive, "-c", "raise SystemExit(7)")
    assert code == 3 and "entered no session (exit code 7)" in document["problem"]
    code, document, _ = verify(archive, PROGRAM, "load", str(plain[0]), out)
    assert code == 3 and f"loaded {plain[0]}" in document["problem"]
    code, document, _ = verify(plain[0], PROGRAM, "load", str(plain[0]), out)
    assert code == 3 and "golden=True" in document["problem"]
    done = command("verify", "--json", str(archive), "--", "/nonexistent")
    assert done.returncode == 3 and "cannot be started" in json.loads(done.stdout)["problem"]
