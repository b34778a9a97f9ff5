"""What a program notes on SAVE and reads on LOAD, and which tensors it may register."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import fake_core
import pytest
from fake_framework import Framework
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_world import World

import foundry
from foundry import archive_json
from foundry.archive_json import Manifest
from foundry.fingerprint import Fingerprint

# Machines may be busy.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


VALUES = {"text": "ü\n", "count": 1 << 60, "share": 0.1, "yes": True, "no": False, "": ""}


def write(world: World, notes: dict[str, Any]) -> None:
    world.save(last=lambda engine: engine.session.notes.update(notes))


def change(world: World, edit: Callable[[dict[str, Any]], None]) -> None:
    path = world.archive / "foundry.json"
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def test_notes_come_back_with_their_types(world: World) -> None:
    write(world, VALUES)
    seen: dict[str, Any] = {}
    engine = world.load(before_input=lambda engine: seen.update(engine.session.notes))
    assert seen == VALUES and {name: type(value) for name, value in seen.items()} == {
        name: type(value) for name, value in VALUES.items()
    }
    assert engine.session.report.notes == VALUES
    engine.check()


def test_notes_of_a_load_stay_out_of_the_archive(world: World) -> None:
    write(world, {"a": 1})
    before = (world.archive / "foundry.json").read_bytes()
    world.load(last=lambda engine: engine.session.notes.update(a=2, b=3))
    assert (world.archive / "foundry.json").read_bytes() == before


@pytest.mark.parametrize("mode", ["off", "load"])
def test_without_an_archive_there_are_none(world: World, mode: str) -> None:
    seen: list[dict[str, Any]] = []
    world.load(mode=mode, before_input=lambda engine: seen.append(dict(engine.session.notes)))
    assert seen == [{}]


def test_an_archive_of_something_else_has_none_for_us(world: World) -> None:
    write(world, {"a": 1})
    seen: list[dict[str, Any]] = []
    world.load(
        session={"fingerprint": {"other": 1}}, before_input=lambda engine: seen.append(dict(engine.session.notes))
    )
    assert seen == [{}]


def test_archives_from_before_there_were_notes(world: World) -> None:
    world.save()
    change(world, lambda document: document.pop("notes"))
    world.load().check()


HOSTILE: list[Any] = [None, [], [1], {"a": None}, {"a": []}, {"a": {}}, {"a": {"b": 1}}, "text", 5, True]


@pytest.mark.parametrize("notes", HOSTILE, ids=repr)
def test_notes_that_are_not_what_they_should_be(world: World, notes: Any) -> None:
    world.save()
    change(world, lambda document: document.update(notes=notes))
    engine = world.load()
    if notes == {}:
        assert engine.session.report.outcome == "restored"
        return
    sentence = "the note 'a' is no text, number" if isinstance(notes, dict) else "the notes are no table"
    assert engine.session.report.outcome == "native"
    assert sentence in engine.session.report.reason
    engine.check()
    with pytest.raises(fake_core.FoundryError, match=sentence):
        world.load(session={"on_mismatch": "fail"})


def test_too_many_notes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save()
    monkeypatch.setattr(archive_json, "MAX_FIELDS", 40)
    change(world, lambda document: document.update(notes={str(i): i for i in range(40)}))
    world.load().check()
    change(world, lambda document: document["notes"].update(more=1))
    assert "or too many" in world.load().session.report.reason


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none(world: World, text: str) -> None:
    """Python's JSON reads them; a program that compares sizes must not get them."""
    write(world, {"bytes": 12345})
    path = world.archive / "foundry.json"
    path.write_text(path.read_text().replace("12345", text))
    engine = world.load()
    assert engine.session.report.outcome == "native"
    assert "bytes" in engine.session.report.reason


@pytest.mark.parametrize("value", [object(), None, [1], float("nan"), b"x"], ids=repr)
def test_a_note_that_no_archive_can_have(world: World, value: Any) -> None:
    with pytest.raises(fake_core.FoundryError, match="note 'bad'"):
        write(world, {"bad": value})
    assert not world.archive.exists()


@UNHURRIED
@given(
    st.dictionaries(
        st.text(max_size=8),
        st.text(max_size=8) | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans(),
        max_size=8,
    )
)
def test_any_notes_survive_the_file(notes: dict[str, Any]) -> None:
    manifest = Manifest(fake_core.FORMAT_VERSION, "0", Fingerprint({}, {}), [], [], {}, notes)
    read = archive_json.loads(manifest.dumps(), "foundry.json").notes
    assert read == notes
    assert [type(value) for value in read.values()] == [type(value) for value in notes.values()]


# ---- in_phase


@pytest.mark.parametrize("mode", ["save", "load"])
def test_tensors_of_phases_may_be_registered(world: World, mode: str) -> None:
    def start(session: foundry.Session, framework: Framework) -> None:
        with session as s:
            before = framework.tensor(bytes(8))
            with s.phase("weights"):
                inside = framework.tensor(bytes(8))
                with s.phase("scratch", "private"):
                    private = framework.tensor(bytes(8))
            found = [s.in_phase(tensor) for tensor in (before, inside, inside[2:4], private, inside[8:])]
            assert found == [False, True, True, False, False]
            assert not any(s.in_phase(value) for value in (None, 3, "text", [inside], s))
            s.register("w", inside)
            s.graph("g", lambda: framework.add(inside, inside))
        assert not s.in_phase(inside), "the session is over"

    fake_core.new_process(hook=True)
    framework = Framework()
    start(world.session(framework, "save"), framework)
    if mode == "load":
        fake_core.new_process()
        framework = Framework()
        start(world.session(framework, "load"), framework)


@pytest.mark.parametrize("mode", ["off", "load"])
def test_where_nothing_is_recorded_no_tensor_is_in_a_phase(world: World, mode: str) -> None:
    fake_core.new_process()
    framework = Framework()
    with world.session(framework, mode) as s, s.phase("weights"):
        assert not s.in_phase(framework.tensor(bytes(8)))


def test_what_cannot_be_described_is_in_no_phase(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse or meta tensors, say: they have no address."""
    fake_core.new_process(hook=True)
    framework = Framework()

    def refuses(tensor: Any) -> Any:
        raise fake_core.fail("unsupported", "it is sparse")

    with world.session(framework, "save") as s, s.phase("weights"):
        tensor = framework.tensor(bytes(8))
        monkeypatch.setattr(framework, "describe", refuses)
        assert not s.in_phase(tensor)
        monkeypatch.undo()


def test_outside_of_the_block_it_is_an_error(world: World) -> None:
    with pytest.raises(RuntimeError, match="inside its `with` block"):
        world.session(Framework(), "save").in_phase(None)
