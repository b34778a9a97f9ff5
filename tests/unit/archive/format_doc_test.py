"""docs/archive-format.md says what csrc/archive/records.h says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from csrc.archive import format_doc

SOURCE = Path(os.environ.get("RECORDS", format_doc.RECORDS)).read_text(encoding="utf-8")
DOCUMENT = Path(os.environ.get("DOCUMENT", format_doc.DOCUMENT)).read_text(encoding="utf-8")


def test_document_is_up_to_date() -> None:
    assert format_doc.updated(DOCUMENT, SOURCE) == DOCUMENT, "run python3 csrc/archive/format_doc.py"


def test_changed_records_are_noticed() -> None:
    changed = SOURCE.replace("uint32_t grid[3], block[3];", "uint32_t grid[3], block[3], more;")
    assert changed != SOURCE
    assert format_doc.updated(DOCUMENT, changed) != DOCUMENT
    limit = SOURCE.replace(
        "X(kernels, 8, 1, graphs, KernelRecord, 1ull << 26)", "X(kernels, 8, 1, graphs, KernelRecord, 1ull << 25)"
    )
    assert limit != SOURCE
    assert format_doc.updated(DOCUMENT, limit) != DOCUMENT


def test_layout_matches_the_compiler() -> None:
    """Two records whose sizes table.h asserts, and one with arrays and several fields on a line."""
    records = format_doc.parse_records(SOURCE)
    assert records["FileHeader"].bytes == 72
    assert records["SectionEntry"].bytes == 56
    kernel = {field.name: (field.offset, field.bytes) for field in records["KernelRecord"].fields}
    assert kernel["block"] == (16, 12)
    assert kernel["arguments"] == (40, 8)
    assert records["KernelRecord"].bytes == 56


def test_every_section_and_record_of_the_table_is_listed() -> None:
    rows = format_doc.parse_sections(SOURCE)
    assert len(rows) == SOURCE.count("\n  X(")
    for row in rows:
        assert f"| `{row.name}` | {row.number} |" in DOCUMENT
    for name in format_doc.parse_records(SOURCE):
        assert f"### {name} (" in DOCUMENT


def test_unknown_types_are_refused() -> None:
    with pytest.raises(format_doc.FormatError, match="unknown type"):
        format_doc.parse_records("struct A {\n  float x;\n};\n")
    with pytest.raises(format_doc.FormatError, match="marks"):
        format_doc.updated("no marks here", SOURCE)
