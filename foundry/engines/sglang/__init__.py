"""SGLang, unmodified: the entry point `foundry` of the group `sglang.srt.plugins`."""

from __future__ import annotations

import os


def register() -> None:
    """Called by SGLang in every one of its processes. Does nothing, and imports nothing, unless FOUNDRY_MODE is set."""
    if os.environ.get("FOUNDRY_MODE", "off") in ("", "off"):
        return
    from foundry.engines.sglang import plugin

    plugin.install()
