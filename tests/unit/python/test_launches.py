"""Which starts an archive has served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from session_world import World

from foundry import launches
from foundry.report import Report

DEVICE: dict[str, object] = {"gpu_name": "a GPU", "sm_count": 108}


def test_a_key_stands_for_command_environment_model_and_device(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    config = model / "config.json"
    config.write_text("{}")
    command, env = ["serve", str(model)], {"VLLM_X": "1", "HOME": "/h"}
    base = launches.key(command, env, DEVICE)
    assert base == launches.key(command, {**env, "HOME": "/other"}, DEVICE)
    different = {
        launches.key([*command, "--port"], env, DEVICE),
        launches.key(command, {"VLLM_X": "2"}, DEVICE),
        launches.key(command, env, {**DEVICE, "sm_count": 132}),
    }
    config.write_text('{"layers": 2}')
    different.add(launches.key(command, env, DEVICE))
    assert len(different) == 4 and base not in different


def test_record_and_forget(tmp_path: Path) -> None:
    archive = str(tmp_path / "a")
    assert not launches.served(archive, "k")
    launches.record(archive, "k", False)
    assert not Path(archive + launches.SUFFIX).exists()
    for i in range(300):
        launches.record(archive, f"{i}", True)
    launches.record(archive, "k", True)
    assert launches.served(archive, "k") and launches.served(archive, "299") and not launches.served(archive, "0")
    launches.record(archive, "k", False)
    assert not launches.served(archive, "k")
    assert [path.name for path in tmp_path.iterdir()] == ["a.launches"]


@pytest.mark.parametrize("text", ["", "{", "{}", "7", "[1, null]", "[" * 100000, "\xff"])
def test_a_list_that_cannot_be_read_has_served_nobody(tmp_path: Path, text: str) -> None:
    Path(tmp_path, "a.launches").write_bytes(text.encode("latin-1"))
    archive = str(tmp_path / "a")
    assert not launches.served(archive, "k")
    launches.record(archive, "k", True)
    assert json.loads(Path(tmp_path, "a.launches").read_text()) == ["k"]


def test_nowhere_to_write_is_no_error(tmp_path: Path) -> None:
    launches.record(str(tmp_path / "missing" / "a"), "k", True)


def test_sessions_of_the_launcher_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = str(world.archive)
    monkeypatch.setenv(launches.LAUNCH_VARIABLE, "k")
    world.save(mode="auto")
    assert launches.served(archive, "k")
    world.load(mode="auto")
    assert launches.served(archive, "k")
    # A start that the archive does not fit gets the hook next time.
    world.load(mode="auto", session={"fingerprint": {"model": "another"}})
    assert not launches.served(archive, "k")


@pytest.mark.parametrize(("outcome", "damaged", "served"), [("restored", False, True), ("restored", True, False)])
def test_a_damaged_archive_is_to_be_saved_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str, damaged: bool, served: bool
) -> None:
    archive = str(tmp_path / "a")
    monkeypatch.setenv(launches.LAUNCH_VARIABLE, "k")
    launches.record(archive, "k", True)
    launches.settle(archive, Report(archive, "auto", outcome, damaged=damaged))
    assert launches.served(archive, "k") is served
