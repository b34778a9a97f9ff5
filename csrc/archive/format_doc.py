"""Keeps the tables of docs/archive-format.md in step with csrc/archive/records.h.

python3 csrc/archive/format_doc.py            # rewrites the generated part of the document
python3 csrc/archive/format_doc.py --check    # exit code 1 where it is out of date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = "csrc/archive/records.h"
DOCUMENT = "docs/archive-format.md"
BEGIN = "<!-- generated from csrc/archive/records.h by csrc/archive/format_doc.py: begin -->"
END = "<!-- generated: end -->"

SCALARS = {"char": 1, "uint8_t": 1, "uint32_t": 4, "int32_t": 4, "uint64_t": 8, "int64_t": 8}


@dataclass
class Field:
    name: str
    type: str
    offset: int
    bytes: int
    note: str = ""


@dataclass
class Record:
    name: str
    note: str
    fields: list[Field] = field(default_factory=list)
    bytes: int = 0


@dataclass(frozen=True)
class SectionRow:
    name: str
    number: int
    version: int
    kind: str
    record: str
    most: str


class FormatError(Exception):
    """records.h has something that this parser does not know."""


def _declarations(body: str) -> Iterator[tuple[str, str]]:
    """Pairs of (declaration, comment behind it) of a struct's lines."""
    for line in body.splitlines():
        code, _, note = line.partition("//")
        declarations = [part.strip() for part in code.split(";") if part.strip()]
        for position, declaration in enumerate(declarations):
            if "operator" in declaration:
                continue
            yield declaration, note.strip() if position == len(declarations) - 1 else ""


def parse_records(source: str) -> dict[str, Record]:
    """Structs in order. Records have no padding (table.h asserts it), so offsets are sums."""
    records: dict[str, Record] = {}
    pattern = r"^struct (\w+) \{[ ]*(?://[ ]*([^\n]*))?\n(.*?)^\};"
    for match in re.finditer(pattern, source, re.MULTILINE | re.DOTALL):
        name, note, body = match.group(1), match.group(2) or "", match.group(3)
        record = Record(name, note)
        for declaration, comment in _declarations(body):
            kind, _, names = declaration.partition(" ")
            unit = SCALARS.get(kind) or (records[kind].bytes if kind in records else 0)
            if unit == 0:
                raise FormatError(f"{RECORDS}: {name} has a field of unknown type: {declaration}")
            for item in names.split(","):
                shape = re.fullmatch(r"\s*(\w+)(?:\[(\d+)\])?\s*", item)
                if shape is None:
                    raise FormatError(f"{RECORDS}: {name} has a field that is not understood: {declaration}")
                count = int(shape.group(2) or 1)
                shown = f"{kind}[{count}]" if shape.group(2) else kind
                record.fields.append(Field(shape.group(1), shown, record.bytes, unit * count))
                record.bytes += unit * count
            record.fields[-1].note = comment
        records[name] = record
    return records


def parse_sections(source: str) -> list[SectionRow]:
    rows = re.findall(r"^  X\((\w+), (\d+), (\d+), (\w+), (\w+), ([^)]+)\)", source, re.MULTILINE)
    return [
        SectionRow(name, int(number), int(version), kind, record, most)
        for name, number, version, kind, record, most in rows
    ]


def parse_enums(source: str) -> list[tuple[str, list[tuple[str, str]]]]:
    out = []
    for match in re.finditer(r"^enum (?:class )?(\w+) : uint32_t \{(.*?)\};", source, re.MULTILINE | re.DOTALL):
        values = re.findall(r"(\w+) = (\d+)", re.sub(r"//.*", "", match.group(2)))
        out.append((match.group(1), values))
    return out


def _limit(expression: str) -> str:
    shift = re.fullmatch(r"1ull << (\d+)", expression.strip())
    return f"2^{shift.group(1)}" if shift else expression.strip()


def render(source: str) -> str:
    """The generated part of the document."""
    records, sections = parse_records(source), parse_sections(source)
    version = re.search(r"kFormatVersion = (\d+);", source)
    if version is None or not records or not sections:
        raise FormatError(f"{RECORDS} does not look as expected")
    out = [f"Format version {version.group(1)}.", "", "## Sections", ""]
    out += [
        "| file | section | number | version | record | bytes a record | most records |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in sections:
        size = 1 if row.record == "blob" else SCALARS.get(row.record) or records[row.record].bytes
        out.append(
            f"| {row.kind}.fdry | `{row.name}` | {row.number} | {row.version} | {row.record} | {size} | {_limit(row.most)} |"
        )
    out += ["", "## Records", ""]
    for record in records.values():
        out += [f"### {record.name} ({record.bytes} bytes)", ""]
        if record.note:
            out += [record.note[0].upper() + record.note[1:] + ".", ""]
        out += ["| offset | field | type | meaning |", "| --- | --- | --- | --- |"]
        for item in record.fields:
            note = item.note.replace("|", "\\|").replace("<", "&lt;")
            out.append(f"| {item.offset} | `{item.name}` | {item.type} | {note} |")
        out.append("")
    out += ["## Numbers", "", "| name | values |", "| --- | --- |"]
    for name, values in parse_enums(source):
        out.append(f"| {name} | {', '.join(f'{value} {label}' for label, value in values)} |")
    return "\n".join(out) + "\n"


def updated(document: str, source: str) -> str:
    """The document with its generated part made anew."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise FormatError(f"{DOCUMENT} lacks the marks around its generated part")
    return f"{head}{BEGIN}\n\n{render(source)}\n{END}{tail}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail where the document is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="root of the checkout")
    options = parser.parse_args(arguments)
    document: Path = options.root / DOCUMENT
    before = document.read_text(encoding="utf-8")
    after = updated(before, (options.root / RECORDS).read_text(encoding="utf-8"))
    if options.check and before != after:
        print(f"{DOCUMENT} is out of date; run python3 csrc/archive/format_doc.py", file=sys.stderr)
        return 1
    if before != after:
        document.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
