"""vLLM, unmodified: the entry point `foundry` of the group `vllm.general_plugins`."""

from __future__ import annotations

import os


def register() -> None:
    """Called by vLLM in every one of its processes. Does nothing, and imports nothing, unless FOUNDRY_MODE is set."""
    if os.environ.get("FOUNDRY_MODE", "off") in ("", "off"):
        return
    from foundry.engines.vllm import plugin

    plugin.install()
