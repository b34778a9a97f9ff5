"""A LOAD with 2 MiB more or less than the SAVE works, and `foundry diff` names the allocation and who made it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foundry.recipes import simulated

PROGRAM = str(Path(__file__).parent / "program.py")
MIB = 1 << 20
STACKS = {"FOUNDRY_JOURNAL": "stacks,python"}


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**simulated.environment(os.environ, "a100-40gb"), **env}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, check=False, env=environment
    )


def save(folder: Path, extra: str, **env: str) -> dict[str, Any]:
    results = folder / "save.json"
    launcher = ("-m", "foundry", "run", "--save", "--", sys.executable)
    done = run(*launcher, PROGRAM, "save", str(folder / "a"), str(results), extra, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(results.read_text())
    assert found["outcome"] == "saved", found["text"]
    return found


def load(folder: Path, extra: str, journal: Path | str | None, **env: str) -> dict[str, Any]:
    results = folder / "load.json"
    if journal is not None:
        env["FOUNDRY_JOURNAL_FILE"] = str(journal)
    done = run(PROGRAM, "load", str(folder / "a"), str(results), extra, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(results.read_text())
    assert found["outcome"] == "restored", found["text"]
    assert found["tokens"] == found["eager"]
    return found


def diff(folder: Path, journal: Path, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole document, and the zone of the weights."""
    done = run("-m", "foundry", "diff", str(folder / "a"), str(journal), "--json", *options)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    zones = {zone["zone"]: zone for zone in document["zones"]}
    assert set(zones) == {"weights", "kv_cache", "buffers"}
    assert all(zone["first"] is None for name, zone in zones.items() if name != "weights")
    return document, zones["weights"]


def functions(allocation: dict[str, Any]) -> list[str]:
    return [frame["function"] for frame in allocation["python_frames"]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    save(folder, "none", **STACKS)
    return folder


@pytest.fixture(scope="module")
def saved_with_more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("more")
    save(folder, "after", **STACKS)
    return folder


def test_two_mib_more_behind_the_weights(saved: Path) -> None:
    journal = saved / "after.fdry"
    found = load(saved, "after", journal, **STACKS)
    assert found["reseated"] == [] and found["divergence"] == ""
    _, weights = diff(saved, journal)
    assert weights["counts"] == {"extra": 1} and weights["load"] == weights["save"] + 1
    first = weights["first"]
    assert first["kind"] == "extra" and first["save"] is None
    extra = first["load"]
    assert extra["bytes"] == 2 * MIB
    assert "allocate_extra" in functions(extra)
    assert any(frame["file"] == "program.py" and frame["line"] > 0 for frame in extra["python_frames"])
    assert extra["frames"] and not any(frame["module"].startswith("_core") for frame in extra["frames"][:1])
    assert extra["graphs"] == [] and extra["tensors"] == []


def test_two_mib_more_before_the_weights_moves_them(saved: Path) -> None:
    journal = saved / "before.fdry"
    found = load(saved, "before", journal, **STACKS)
    assert found["reseated"]
    assert "2.0 MiB that SAVE did not" in found["divergence"] and "foundry diff" in found["divergence"]
    assert str(journal) in found["divergence"] and found["divergence"] in found["text"]
    _, weights = diff(saved, journal)
    first = weights["first"]
    assert first["kind"] == "extra" and first["load"]["bytes"] == 2 * MIB
    # Who made the extra one, and who was first on SAVE: both stacks, told apart by their makers.
    assert "allocate_extra" in functions(first["load"]) and first["load"]["position"] == 0
    assert "allocate_extra" not in functions(first["save_next"]) and "load_weights" in functions(first["save_next"])
    assert any(frame["function"] for frame in first["load"]["frames"]), "no native frame has a name"
    # It took the addresses that the weights had.
    assert first["load"]["address"] == first["save_next"]["address"]
    assert "decode/21" in first["save_next"]["graphs"] and "embed.tokens" in first["save_next"]["tensors"]


def test_two_mib_less(saved_with_more: Path) -> None:
    journal = saved_with_more / "less.fdry"
    load(saved_with_more, "none", journal, **STACKS)
    _, weights = diff(saved_with_more, journal)
    assert weights["counts"] == {"missing": 1}
    first = weights["first"]
    assert first["kind"] == "missing" and first["load"] is None and first["save"]["bytes"] == 2 * MIB
    assert "allocate_extra" in functions(first["save"])


def test_equal_processes_do_not_diverge(saved: Path) -> None:
    journal = saved / "equal.fdry"
    load(saved, "none", journal, **STACKS)
    _, weights = diff(saved, journal)
    assert weights["first"] is None and weights["counts"] == {}
    done = run("-m", "foundry", "diff", str(saved / "a"), str(journal))
    assert done.returncode == 0 and "No zone diverges" in done.stdout


def test_text_for_people(saved: Path) -> None:
    journal = saved / "text.fdry"
    load(saved, "after", journal, FOUNDRY_JOURNAL="sizes")
    done = run("-m", "foundry", "diff", str(saved / "a"), str(journal))
    assert done.returncode == 0, done.stderr
    assert "extra: zone 'weights': LOAD allocated 2.0 MiB that SAVE did not" in done.stdout
    assert "no stack: it was recorded without FOUNDRY_JOURNAL=stacks" in done.stdout
    assert "no graph depends on these addresses" in done.stdout


def test_summary_of_the_archive(saved: Path) -> None:
    done = run("-m", "foundry", "diff", str(saved / "a"))
    assert done.returncode == 0, done.stderr
    assert "weights" in done.stdout and "ambient" in done.stdout
    done = run("-m", "foundry", "diff", str(saved / "a"), "--json")
    rows = {row["zone"]: row for row in json.loads(done.stdout)["save"]}
    assert (
        rows["weights"]["allocations"] >= 1 and rows["weights"]["bytes"] >= 2 * MIB and rows["weights"]["stacks"] >= 1
    )


def test_journals_hold_no_paths_and_no_values(saved: Path) -> None:
    journal = saved / "paths.fdry"
    load(saved, "after", journal, **STACKS)
    for path in (journal, saved / "a" / "rank_0" / "journal.fdry"):
        data = path.read_bytes()
        assert b"program.py" in data and b"load_weights" in data  # the frames are there
        for secret in (str(saved), os.path.dirname(PROGRAM), os.path.dirname(os.path.realpath(sys.executable))):
            assert secret.encode() not in data
        assert b"/" not in b"".join(chunk for chunk in data.split(b"\0") if b"program.py" in chunk)


def test_without_a_level_there_is_no_journal(saved: Path) -> None:
    journal = saved / "none.fdry"
    found = load(saved, "after", journal)
    assert not journal.exists()
    assert any("FOUNDRY_JOURNAL_FILE is set" in warning for warning in found["warnings"])
    found = load(saved, "before", None, FOUNDRY_JOURNAL="sizes")
    assert "FOUNDRY_JOURNAL_FILE" in found["divergence"]  # how to get the rest


def test_journal_that_cannot_be_written_is_a_warning(saved: Path) -> None:
    found = load(saved, "none", saved / "no" / "such" / "folder.fdry", **STACKS)
    assert any("no/such" in warning for warning in found["warnings"])


def test_journal_is_replaced_as_a_whole(saved: Path) -> None:
    journal = saved / "again.fdry"
    journal.write_text("something else")
    load(saved, "none", journal, **STACKS)
    diff(saved, journal)
    assert [path.name for path in saved.iterdir() if ".tmp" in path.name] == []


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:200] + b"x" + data[201:], lambda _: b""])
def test_damaged_journal_is_refused(saved: Path, damage: Callable[[bytes], bytes]) -> None:
    journal = saved / "damaged.fdry"
    journal.write_bytes(damage((saved / "a" / "rank_0" / "journal.fdry").read_bytes()))
    done = run("-m", "foundry", "diff", str(saved / "a"), str(journal))
    assert done.returncode == 1 and "damaged.fdry" in done.stderr


def test_archive_without_a_journal(tmp_path: Path) -> None:
    save(tmp_path, "none", FOUNDRY_JOURNAL="off")
    done = run("-m", "foundry", "diff", str(tmp_path / "a"))
    assert done.returncode == 0 and "nothing to compare" in done.stdout
    found = load(tmp_path, "before", tmp_path / "load.fdry", FOUNDRY_JOURNAL="stacks")
    assert found["divergence"] == ""
