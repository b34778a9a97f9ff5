"""Small helpers for text that people read: tables, bytes, counts."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns padded to the widest cell, two blanks apart, a rule under the head."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def size(nbytes: int) -> str:
    """Bytes in the largest binary unit that leaves at least 1: "2.0 MiB"."""
    value, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    for unit in units:
        if value < 1024 or unit == units[-1]:
            return f"{nbytes} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def count(number: int, noun: str, plural: str | None = None) -> str:
    """ "1 graph", "2 graphs"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def some(names: Sequence[str], limit: int = 8) -> str:
    """Names joined by commas, the tail counted: "a, b and 12 more"."""
    if len(names) <= limit:
        return ", ".join(names)
    return ", ".join(names[:limit]) + f" and {len(names) - limit} more"
