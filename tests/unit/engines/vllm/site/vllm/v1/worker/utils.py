from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class AttentionGroup:
    metadata_builders: list[Any] = field(default_factory=list)
