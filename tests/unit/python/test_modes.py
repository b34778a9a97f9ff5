"""Which mode a session takes, its arguments, and its report."""

from __future__ import annotations

import logging
import os

import fake_core
import pytest
from fake_framework import Framework
from session_world import World, start

import foundry


def test_no_driver(world: World) -> None:
    engine = world.load(process={"driver": "libcuda.so.1 was not found"})
    assert engine.session.report.reason == "libcuda.so.1 was not found"
    with pytest.raises(foundry.FoundryError, match=r"libcuda.so.1 was not found"):
        fake_core.new_process(hook=True, driver="libcuda.so.1 was not found")
        start(world.session(Framework(), "save"), Framework())


def test_auto_saves_then_loads(world: World) -> None:
    assert world.save(mode="auto").session.report.outcome == "saved"
    engine = world.load(mode="auto")
    engine.check()
    assert engine.session.report.outcome == "restored"
    # Under the hook too: a fitting archive is used, not written again.
    assert world.save(mode="auto").session.report.outcome == "restored"


def test_auto_saves_beside_an_archive_of_something_else(world: World) -> None:
    world.save(session={"fingerprint": {"model": "a"}})
    saved = world.save(mode="auto", session={"fingerprint": {"model": "b"}})
    assert saved.session.report.outcome == "saved"
    siblings = sorted(os.listdir(world.archive.parent))
    assert len(siblings) == 2 and siblings[1].startswith("decode.fdry-") and len(siblings[1]) == len("decode.fdry-") + 8
    for model in "ab":
        engine = world.load(mode="auto", session={"fingerprint": {"model": model}})
        assert engine.session.report.outcome == "restored"
    assert world.load(mode="auto", session={"fingerprint": {"model": "c"}}).session.report.outcome == "native"


def test_environment_narrows_auto_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save()
    monkeypatch.setenv("FOUNDRY_MODE", "off")
    assert world.load(mode="auto").session.report.outcome == "off"
    assert world.load(mode="load").session.report.outcome == "restored"
    monkeypatch.setenv("FOUNDRY_MODE", "save")
    with pytest.raises(foundry.FoundryError, match="SAVE needs"):
        world.load(mode="auto")


def test_environment_names_the_archive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="FOUNDRY_ARCHIVE"):
        foundry.session()
    monkeypatch.setenv("FOUNDRY_ARCHIVE", str(world.archive))
    fake_core.new_process(hook=True)
    framework = Framework()
    start(foundry.session(mode="save", runtime=framework), framework)
    assert world.archive.exists()


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="'sometimes'"):
        foundry.session("a", "sometimes")
    with pytest.raises(ValueError, match="'maybe'"):
        foundry.session("a", on_mismatch="maybe")
    with pytest.raises(RuntimeError, match="inside its `with` block"):
        foundry.session("a", "off").phase("weights")


@pytest.mark.parametrize("variable", ["FOUNDRY_MODE", "FOUNDRY_ON_MISMATCH"])
def test_bad_values_of_the_environment_name_their_variable(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "perhaps")
    with pytest.raises(ValueError, match=f"{variable} is 'perhaps'"):
        foundry.session("a")


def test_a_place_that_cannot_be_written_is_known_before_anything_is_captured(world: World) -> None:
    world.archive = world.archive.parent / "none" / "decode.fdry"
    calls: list[int] = []
    with pytest.raises(foundry.FoundryError, match=r"none/decode\.fdry: .*Make that folder, or choose another path"):
        world.save(inside=lambda engine: calls.append(1))
    assert not calls
    # Mode "auto" is never worse than native, and says why there will be no archive.
    engine = world.save(mode="auto")
    engine.check()
    assert engine.session.report.outcome == "native" and "Make that folder" in engine.session.report.reason
    world.archive.parent.mkdir()
    assert world.save(mode="auto").session.report.outcome == "saved"
    assert [entry.name for entry in world.archive.parent.iterdir()] == ["decode.fdry"]


def test_an_archive_that_is_not_there_says_what_to_do(world: World) -> None:
    assert "save one with `foundry run --save" in world.load().session.report.reason
    world.archive.mkdir()
    assert "it has no foundry.json" in world.load().session.report.reason


def test_a_damaged_file_is_named_with_its_archive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*arguments: object) -> None:
        raise fake_core.fail("corrupt", "rank_0/graphs.fdry, header: it says 8 bytes, the file has 4.")

    world.save()
    monkeypatch.setattr(fake_core, "Archive", damaged)
    assert world.load().session.report.reason.startswith(f"{world.archive}: rank_0/graphs.fdry, header")
    with pytest.raises(foundry.FoundryError, match="graphs.fdry, header") as raised:
        world.load(session={"on_mismatch": "fail"})
    assert str(world.archive) in str(raised.value) and raised.value.kind == "corrupt"


def test_one_session_at_a_time(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    first, second = world.session(framework, "save"), world.session(framework, "save")
    with first, pytest.raises(RuntimeError, match="one at a time"), second:
        pass


def test_names_are_used_once(world: World) -> None:
    world.save()
    for mode, hook in (("save", True), ("load", False)):
        fake_core.new_process(hook=hook)
        framework = Framework()
        with pytest.raises(foundry.FoundryError, match="name of its own"), world.session(framework, mode) as s:
            s.graph("g", lambda: None)
            s.graph("g", lambda: None)


def test_report_is_printable(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "foundry")
    saved = world.save()
    text = str(saved.session.report)
    assert "saved 3 graphs" in text and "1 code image," in text and "capture" in text
    loaded_text = str(world.load().session.report)
    assert "restored 3 graphs" in loaded_text and "3 tensors in place, 0 re-seated" in loaded_text
    assert text in caplog.text


@pytest.mark.parametrize("damaged", ["foundry.json", "rank_0/all.json"])
def test_auto_replaces_a_damaged_archive_where_it_can_save(world: World, damaged: str) -> None:
    world.save(mode="auto")
    path = world.archive / damaged
    path.write_text(path.read_text()[:-20])
    assert world.load(mode="auto").session.report.outcome == "native"
    assert world.save(mode="load").session.report.outcome == "native"  # it was not asked to save
    engine = world.save(mode="auto")
    engine.check()
    assert engine.session.report.outcome == "saved" and engine.session.report.archive == str(world.archive)
    engine = world.load(mode="auto")
    engine.check()
    assert engine.session.report.outcome == "restored"


@pytest.mark.parametrize("writable", [True, False])
def test_of_a_damaged_archive_that_cannot_be_replaced_the_rest_is_restored(
    world: World, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    def damaged(archive: object) -> None:
        raise fake_core.fail("corrupt", "images/ab: it has 4 bytes, its record says 8")

    def refused(archive: str) -> None:
        raise fake_core.fail("io", f"cannot make the staging directory {archive}.tmp: Read-only file system.")

    world.save(mode="auto")
    monkeypatch.setattr(fake_core.Archive, "verify_images", damaged)
    if not writable:
        monkeypatch.setattr(fake_core, "Staging", refused)
    engine = world.save(mode="auto")
    engine.check()
    assert engine.session.report.outcome == ("saved" if writable else "restored")
