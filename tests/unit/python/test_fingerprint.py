"""The fingerprint's one table, its comparison and key, and foundry.json around it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import fake_core
import pytest
from fake_framework import Framework
from session_world import World

import foundry
from foundry import archive_json, fingerprint
from foundry.fingerprint import FIELDS, Fingerprint, Mismatch


@pytest.fixture
def here(world: World) -> Fingerprint:
    return fingerprint.take(Framework(), 0, {"model": "m", "layers": 28})  # type: ignore[arg-type]


def changed(taken: Fingerprint, **values: Any) -> Fingerprint:
    return Fingerprint({**taken.values, **values}, taken.rules)


def test_every_field_of_the_table_is_taken(here: Fingerprint) -> None:
    assert set(here.values) == {field.name for field in FIELDS} | {"model", "layers"}
    assert len({field.name for field in FIELDS}) == len(FIELDS)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_each_field_is_compared_by_its_rule(here: Fingerprint, field: fingerprint.Field) -> None:
    value = here.values[field.name]
    other = value + 1 if isinstance(value, int) else f"{value}!"  # type: ignore[operator]
    differences = here.differences(changed(here, **{field.name: other}))
    back = changed(here, **{field.name: other}).differences(here)
    if field.rule == "exact":
        assert differences == [Mismatch(field.name, value, other, "exact")] and len(back) == 1
    elif field.rule == "at_least":
        assert differences == [] and back == [Mismatch(field.name, other, value, "at_least")]
    else:
        assert differences == back == []


def test_equal_fingerprints_have_equal_keys(here: Fingerprint) -> None:
    for field in FIELDS:
        value = here.values[field.name]
        other = changed(here, **{field.name: value + 1 if isinstance(value, int) else "x"})  # type: ignore[operator]
        assert (other.key() == here.key()) is (field.rule != "exact")
    assert changed(here, model="n").key() != here.key()
    assert len(here.key()) == 32 and set(here.key()) <= set("0123456789abcdef")


def test_absent_fields_differ(here: Fingerprint) -> None:
    without = Fingerprint({k: v for k, v in here.values.items() if k != "model"}, here.rules)
    assert [(m.archive, m.here) for m in here.differences(without)] == [("m", None)]
    assert [(m.archive, m.here) for m in without.differences(here)] == [(None, "m")]


def test_types_count(here: Fingerprint) -> None:
    assert here.differences(changed(here, layers="28")) and here.differences(changed(here, layers=28.0))
    assert changed(here, total_memory="much").differences(here)
    assert changed(here, layers=1).differences(changed(here, layers=True))


def test_rules_of_known_fields_cannot_be_weakened_by_a_file(here: Fingerprint) -> None:
    lax = Fingerprint({**here.values, "sm_count": 1}, dict.fromkeys(here.rules, "information"))
    assert [m.field for m in lax.differences(here)] == ["sm_count"]


def test_table_text(here: Fingerprint) -> None:
    text = fingerprint.mismatch_table(here.differences(changed(here, sm_count=108, total_memory=5)))
    lines = [line.split("  ") for line in text.splitlines()]
    assert lines[0][0] == "field"
    assert [line[0].strip() for line in lines[2:]] == ["sm_count", "total_memory"]
    assert "must be equal" in text and "at least the archive's" in text and "108" in text


@pytest.mark.parametrize("name", ["gpu_name", "framework_version", "created"])
def test_own_names_are_reserved(world: World, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        fingerprint.take(Framework(), 0, {name: "x"})  # type: ignore[arg-type]


def test_extra_values(world: World) -> None:
    taken = fingerprint.take(Framework(), 0, {"sizes": [1, 2], "flags": {"b": 1, "a": 2}, "path": world.archive})  # type: ignore[arg-type]
    assert taken.values["sizes"] == "[1, 2]" and taken.values["flags"] == '{"a": 2, "b": 1}'
    assert taken.values["path"] == str(world.archive)
    with pytest.raises(ValueError, match="'model' is a object"):
        fingerprint.take(Framework(), 0, {"model": object()})  # type: ignore[arg-type]


# ---- foundry.json


@pytest.fixture
def manifest(here: Fingerprint) -> archive_json.Manifest:
    graph = archive_json.GraphEntry("g", 3, 2, {"kernel": 2, "memset": 1})
    return archive_json.Manifest(1, "0.1", here, [("rank_0/a", 5, "ab")], [graph], {"h": ["a host node"]})


def test_manifest_round_trip(manifest: archive_json.Manifest) -> None:
    back = archive_json.loads(manifest.dumps(), "here")
    assert dataclasses.asdict(back) == dataclasses.asdict(manifest)


def test_other_format_version_is_one_sentence(manifest: archive_json.Manifest) -> None:
    text = dataclasses.replace(manifest, format_version=7).dumps()
    with pytest.raises(
        foundry.FoundryError, match="a/foundry.json has format version 7, this Foundry reads 1"
    ) as caught:
        archive_json.loads(text, "a/foundry.json")
    assert caught.value.kind == "mismatch"


def test_newer_version_with_another_layout_still_says_version() -> None:
    with pytest.raises(foundry.FoundryError, match="format version 2"):
        archive_json.loads('{"format_version": 2, "whatever": []}', "f")


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [prefix] if prefix else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += paths(item, (*prefix, key))
    return found


def test_every_wrong_type_is_refused(manifest: archive_json.Manifest) -> None:
    """Each value of the file in turn is replaced by ones of other types."""
    original = json.loads(manifest.dumps())
    tried = 0
    for path in paths(original):
        for wrong in (None, [None], {"a": None}, -1, True):
            document = json.loads(manifest.dumps())
            parent = document
            for key in path[:-1]:
                parent = parent[key]
            kept = parent[path[-1]]
            allowed = path[0] == "fingerprint" and path[-1] == "value" and isinstance(wrong, (int, bool))
            if type(kept) is type(wrong) and not isinstance(wrong, int) or allowed:
                continue
            parent[path[-1]] = wrong
            with pytest.raises(foundry.FoundryError, match="f"):
                archive_json.loads(json.dumps(document), "f")
            tried += 1
    assert tried > 100


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null", "[" * 100_000, "{}"])
def test_no_manifest(world: World, text: str) -> None:
    with pytest.raises(foundry.FoundryError, match=r"^f") as caught:
        archive_json.loads(text, "f")
    assert caught.value.kind == "corrupt"


def test_too_many_entries(manifest: archive_json.Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_json, "MAX_FILES", 0)
    with pytest.raises(foundry.FoundryError, match="more than 0"):
        archive_json.loads(manifest.dumps(), "f")


def test_read_names_the_missing_file(world: World) -> None:
    with pytest.raises(foundry.FoundryError, match="there is no archive"):
        archive_json.read(str(world.archive))
    assert fake_core.process.zones == {}
