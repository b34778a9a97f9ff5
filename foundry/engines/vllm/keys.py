"""Names of graphs in an archive: runtime mode, every field of the batch descriptor, piece."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any


def name(mode: Any, descriptor: Any, piece: int | None = None) -> str:
    """For instance "FULL/num_tokens=8/num_reqs=8/uniform=True/has_lora=False/num_active_loras=0".

    All fields, whatever this release has: two batches that vLLM tells apart never share a name.
    """
    parts = [getattr(mode, "name", str(mode))]
    for field, value in _fields(descriptor):
        parts.append(f"{field}={value.name if isinstance(value, enum.Enum) else value}")
    if piece is not None:
        parts.append(f"piece={piece}")
    return "/".join(parts)


def _fields(descriptor: Any) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(descriptor):
        return [(field.name, getattr(descriptor, field.name)) for field in dataclasses.fields(descriptor)]
    return list(descriptor._asdict().items())
