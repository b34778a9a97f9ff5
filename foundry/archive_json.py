"""foundry.json: what an archive is for and what belongs to it. Written last; nothing else is touched before it fits."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from foundry.errors import corrupt, error, invalid, mismatch
from foundry.fingerprint import RULES, Fingerprint, Value

NAME = "foundry.json"
GOLDEN = "rank_0/golden.fdry"

# More than any real archive has; a hand-made file cannot make a reader allocate without bound.
MAX_FILES = 1 << 20
MAX_GRAPHS = 1 << 16
MAX_FIELDS = 4096

T = TypeVar("T")


@dataclass(frozen=True)
class GraphEntry:
    """A graph, for people: the binary files say the same and more."""

    name: str
    nodes: int
    edges: int
    nodes_by_type: Mapping[str, int]


@dataclass(frozen=True)
class Manifest:
    """The content of foundry.json. `inventory`: relative name, bytes, identity hash of every other file. `notes`: what
    the program wants to know again on LOAD."""

    format_version: int
    library_version: str
    fingerprint: Fingerprint
    inventory: Sequence[tuple[str, int, str]]
    graphs: Sequence[GraphEntry]
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: Mapping[str, Value] = field(default_factory=dict)

    def dumps(self) -> str:
        """The text of foundry.json."""
        fingerprint = {
            name: {"value": value, "rule": self.fingerprint.rules[name]}
            for name, value in self.fingerprint.values.items()
        }
        graphs = [
            {"name": g.name, "nodes": g.nodes, "edges": g.edges, "nodes_by_type": dict(g.nodes_by_type)}
            for g in self.graphs
        ]
        document = {
            "format_version": self.format_version,
            "library_version": self.library_version,
            "fingerprint": fingerprint,
            "graphs": graphs,
            "left_out": {name: list(sentences) for name, sentences in self.left_out.items()},
            "notes": dict(self.notes),
            "inventory": [{"name": name, "bytes": nbytes, "hash": digest} for name, nbytes, digest in self.inventory],
        }
        return json.dumps(document, indent=1) + "\n"


def read(archive: str) -> Manifest:
    """The manifest of the archive directory. Raises FoundryError: io, corrupt, or mismatch for another format."""
    from foundry import _core

    where = f"{archive}/{NAME}"
    try:
        text = _core.read_text(archive, NAME)
    except UnicodeDecodeError as problem:
        raise corrupt(f"{where} is not UTF-8 text ({problem}); save the archive anew") from None
    except _core.FoundryError as problem:
        missing = _missing(archive)
        if problem.kind != "io" or not missing:
            raise
        raise error("io", missing) from None
    return loads(text, where)


def _missing(archive: str) -> str:
    """Which of the usual reasons there is that an archive cannot be opened; "" if it is none of them."""
    if not os.path.lexists(archive):
        return f"there is no archive {archive}: check the path, or save one with `foundry run --save -- COMMAND`"
    if os.path.isdir(archive) and not os.path.lexists(os.path.join(archive, NAME)):
        return (
            f"{archive} is no archive, or not all of one: it has no {NAME}; check the path, copy it again or save anew"
        )
    return ""


def loads(text: str, where: str) -> Manifest:
    """Parses and checks the text of foundry.json; `where` names it in errors."""
    from foundry import _core

    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise corrupt(f"{where} is not JSON ({problem}); save the archive anew") from None
    reader = _Reader(where)
    version = reader.get(document, "format_version", int)
    if version != _core.FORMAT_VERSION:
        raise mismatch(
            f"{where} has format version {version}, this Foundry reads {_core.FORMAT_VERSION}; save the archive anew"
        )
    fields = reader.get(document, "fingerprint", dict, MAX_FIELDS)
    return Manifest(
        format_version=version,
        library_version=reader.get(document, "library_version", str),
        fingerprint=Fingerprint(
            {name: reader.value(entry, name) for name, entry in fields.items()},
            {name: reader.rule(entry, name) for name, entry in fields.items()},
        ),
        inventory=reader.each(document, "inventory", MAX_FILES, reader.file),
        graphs=reader.each(document, "graphs", MAX_GRAPHS, reader.graph),
        left_out=reader.sentences(reader.get(document, "left_out", dict, MAX_GRAPHS)),
        notes=reader.notes(document.get("notes", {})),
    )


def plain_notes(notes: Mapping[Any, Any]) -> dict[str, Value]:
    """A copy, checked as `loads` will do it. Raises FoundryError(kind="invalid") for what an archive cannot have."""
    for name, value in notes.items():
        if not isinstance(name, str) or not _noted(value):
            raise invalid(
                f"the note {name!r} is {value!r}: a note has a text as its name, and is text, a finite number or a "
                "truth value"
            )
    return dict(notes)


def _noted(value: object) -> bool:
    """JSON's reader takes NaN and Infinity: programs that compare sizes with a note should not get them."""
    return isinstance(value, (str, int, bool)) or (isinstance(value, float) and math.isfinite(value))


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where

    def fail(self, what: str) -> NoReturn:
        raise corrupt(f"{self._where}: {what}; save the archive anew")

    def get(self, parent: Any, key: str, kind: type[T], limit: int | None = None) -> T:
        if not isinstance(parent, dict) or key not in parent:
            self.fail(f"{key!r} is missing")
        value = parent[key]
        # bool is an int for Python, not here.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.fail(f"{key!r} is a {type(value).__name__}, not a {kind.__name__}")
        if limit is not None and len(value) > limit:  # type: ignore[arg-type]
            self.fail(f"{key!r} has {len(value)} entries, more than {limit}")  # type: ignore[arg-type]
        return value

    def each(self, parent: Any, key: str, limit: int, parse: Callable[[Any], T]) -> list[T]:
        return [parse(entry) for entry in self.get(parent, key, list, limit)]

    def count(self, parent: Any, key: str) -> int:
        value = self.get(parent, key, int)
        if not 0 <= value < 1 << 63:
            self.fail(f"{key!r} is {value}")
        return value

    def file(self, entry: Any) -> tuple[str, int, str]:
        return self.get(entry, "name", str), self.count(entry, "bytes"), self.get(entry, "hash", str)

    def graph(self, entry: Any) -> GraphEntry:
        types = self.get(entry, "nodes_by_type", dict, 64)
        return GraphEntry(
            self.get(entry, "name", str),
            self.count(entry, "nodes"),
            self.count(entry, "edges"),
            {name: self.count(types, name) for name in types},
        )

    def value(self, entry: Any, name: str) -> Value:
        if not isinstance(entry, dict) or not isinstance(entry.get("value"), (str, int, float, bool)):
            self.fail(f"the fingerprint field {name!r} has no value")
        value: Value = entry["value"]
        return value

    def rule(self, entry: Any, name: str) -> Any:
        if not isinstance(entry, dict) or entry.get("rule") not in list(RULES):
            self.fail(f"the fingerprint field {name!r} has no known rule")
        return entry["rule"]

    def notes(self, entries: Any) -> dict[str, Value]:
        if not isinstance(entries, dict) or len(entries) > MAX_FIELDS:
            self.fail("the notes are no table, or too many")
        for name, value in entries.items():
            if not _noted(value):
                self.fail(f"the note {name!r} is no text, number or truth value")
        return entries

    def sentences(self, entries: dict[str, Any]) -> dict[str, list[str]]:
        for name, value in entries.items():
            if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
                self.fail(f"the reasons for leaving out {name!r} are not text")
        return entries
