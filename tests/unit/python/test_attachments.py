"""Text files of the program's in an archive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_framework import Framework
from session_world import Engine, World

import foundry
from foundry import attachments


def attaching(text: Any, name: str = "facts.json") -> dict[str, Any]:
    return {"last": lambda engine: engine.session.attach(name, lambda: text)}


def test_what_save_attaches_load_has(world: World) -> None:
    saved = world.save(**attaching('{"größe": 7}'))
    assert saved.session.report.bytes_by_file["rank_0/attached.facts.json"] == 14
    listed = [entry["name"] for entry in json.loads((world.archive / "foundry.json").read_text())["inventory"]]
    assert "rank_0/attached.facts.json" in listed
    found: list[Any] = []

    def look(engine: Engine) -> None:
        found.extend(engine.session.attached(name) for name in ("facts.json", "other"))

    world.load(before_input=look).check()
    assert found == ['{"größe": 7}', None]


def test_only_load_has_it(world: World) -> None:
    found: list[Any] = []
    world.save(last=lambda engine: found.append(engine.session.attached("facts.json")), inside=lambda engine: None)
    with foundry.session(mode="off", runtime=Framework()) as native:
        native.attach("facts.json", lambda: "never asked for")
        found.append(native.attached("facts.json"))
    assert found == [None, None]


def test_no_text_is_no_file(world: World) -> None:
    saved = world.save(**attaching(None))
    assert list(saved.session.report.bytes_by_file) == ["rank_0/all.json"]


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a\n", "graphs.fdry", "x" * 101, "ä"])
def test_names_are_plain(world: World, name: str) -> None:
    with pytest.raises(foundry.FoundryError, match="cannot be attached") as caught:
        world.save(**attaching("text", name))
    assert caught.value.kind == "invalid"


def test_a_name_is_used_once(world: World) -> None:
    def twice(engine: Engine) -> None:
        engine.session.attach("facts", lambda: "1")
        engine.session.attach("facts", lambda: "2")

    with pytest.raises(foundry.FoundryError, match="two files"):
        world.save(last=twice)


def test_a_text_has_a_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "MAX_BYTES", 3)
    with pytest.raises(foundry.FoundryError, match="longer than"):
        world.save(**attaching("1234"))
    assert not world.archive.exists()


@pytest.mark.parametrize("content", [b"12345", b"\xff\xfe\xfd\xfc", b""])
def test_a_file_that_was_changed_is_corrupt(world: World, content: bytes) -> None:
    world.save(**attaching("1234"))
    (world.archive / "rank_0" / "attached.facts.json").write_bytes(content)

    def look(engine: Engine) -> None:
        with pytest.raises(foundry.FoundryError, match=r"attached\.facts\.json") as caught:
            engine.session.attached("facts.json")
        assert caught.value.kind == "corrupt"

    world.load(before_input=look).check()
