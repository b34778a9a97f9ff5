"""What every runtime does around a capture."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def announced() -> Iterator[None]:
    """Frees of zone memory are put off while the stream captures. Without a core loaded there are no zones."""
    core = sys.modules.get("foundry._core")
    if core is None:
        yield
        return
    core.capture_delta(1)
    try:
        yield
    finally:
        core.capture_delta(-1)
