"""What the recipes of engines share: options handed on, processes followed, figures compared."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from foundry.recipes.engines import in_turns, runs

ENGINE = """
import json, pathlib, sys
print("Foundry: restored 6 graphs", file=sys.stderr, flush=True)
if "--fail" in sys.argv:
    sys.exit("no GPU")
pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps({"arguments": sys.argv[3:]}))
if "--serve" in sys.argv:
    print("recipe: ready", flush=True)
    for line in sys.stdin:
        print(f"recipe: ms {int(line) * 1.5}", flush=True)
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results; `engine_stub` is a program that stands in for an engine."""
    (tmp_path / "engine_stub.py").write_text(ENGINE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path / "results"


def test_options_reach_the_engine() -> None:
    """A value of 0 is one, too."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--kv-gib", type=float, default=16.0)
        parser.add_argument("--model")
        parser.add_argument("--eager", action="store_true")
        parser.add_argument("--separate", action="store_true")
        parser.add_argument("--batches", type=int, nargs="*", default=[1])

    options = runs.parser("x", None, "x.fdry", add).parse_args(["--kv-gib", "0", "--eager", "--batches", "1", "8"])
    assert runs.passed(options, add) == ["--kv-gib", "0.0", "--eager", "--batches", "1", "8"]


def test_a_run(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with runs.Runs("engine_stub", ["--layers", "2"], "a.fdry", str(engine)) as folder:
        assert folder.run("native", "first", ["--compare"]) == {"arguments": ["--layers", "2", "--compare"]}
    assert capsys.readouterr().out.count("Foundry: restored 6 graphs") == 1
    assert (engine / "first.log").read_text() == "Foundry: restored 6 graphs\n"


def test_a_run_that_fails(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with runs.Runs("engine_stub", [], "a.fdry", str(engine)) as folder:
        (engine / "native.json").write_text("{}")  # of a run before
        assert folder.run("native", extra=["--fail"]) is None
        with folder.serving("native", extra=["--fail"]) as serving:
            assert serving is None
    assert capsys.readouterr().out.count("native ended with code 1:\nFoundry: restored 6 graphs\nno GPU") == 2


def test_an_engine_that_lives_and_answers(engine: Path) -> None:
    with runs.Runs("engine_stub", [], "a.fdry", str(engine)) as folder, folder.serving("native") as serving:
        assert serving is not None and serving.results == {"arguments": ["--serve"]}
        assert [serving.ask(batch) for batch in (1, 16)] == [1.5, 24.0]
        serving.process.terminate()
        serving.process.wait()
        with pytest.raises((RuntimeError, BrokenPipeError)):
            serving.ask(1)


def test_modes_start_through_foundry(engine: Path) -> None:
    command = runs.Runs("engine_stub", [], "a.fdry", str(engine)).command("load", Path("r.json"))
    assert command[1:6] == ["-m", "foundry", "run", "--load", "--archive"] and Path(command[6]).is_absolute()


def test_figures() -> None:
    row = in_turns.compared([1.0, 1.01, 0.99] * 7, [1.02] * 21)
    assert (row["native"], row["restored"], row["ratio"]) == (1.0, 1.02, 1.02)
    assert row["native_p5"] == 0.99 and row["native_p95"] == 1.01
    assert not in_turns.as_good(row)
    assert in_turns.as_good(in_turns.compared([1.0] * 9, [1.005] * 9))
    assert in_turns.as_good(in_turns.compared([1.0, 1.1] * 9, [1.09] * 9))  # native ones spread as far
    assert not in_turns.as_good(in_turns.compared([1.0] * 9, [1.006] * 9))
    assert in_turns.compared([2.0], [1.0])["ratio"] == 0.5
    slow = in_turns.compared([1.0] * 9, [1.006] * 9)
    assert in_turns.as_good({**slow, "others": [1.0, 1.007]})  # another native graph is as slow
    assert not in_turns.as_good({**slow, "others": [1.0055]})


def test_other_native_graphs_have_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"batch": 8, **in_turns.compared([1.0] * 9, [1.006] * 9)}
    runs.replays([row], "native", "restored")
    assert "other native ones" not in capsys.readouterr().out
    runs.replays([{**row, "others": [1.0065, 0.99]}], "native", "restored")
    told = capsys.readouterr().out
    assert "other native ones" in told and "1.0065 0.9900" in told and "slower" not in told


def test_tokens_of_save_and_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = str(tmp_path / "a.fdry") + "/"
    assert runs.tokens_as_saved({"tokens": {"1": [[1]]}}, archive)
    assert "are not compared" in capsys.readouterr().out
    runs.keep_tokens({"tokens": {"1": [[1, 2]], "8": [[3], [4]]}}, archive)
    assert runs.tokens_as_saved({"tokens": {"8": [[3], [4]]}}, archive)  # a LOAD may be asked for less
    assert not runs.tokens_as_saved({"tokens": {"1": [[1, 2]], "8": [[3], [5]]}}, archive)
    assert "2 of 3 answers have the tokens of SAVE" in capsys.readouterr().out
