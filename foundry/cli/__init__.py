"""The `foundry` command."""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script; ends the process with the documented exit code."""
    from foundry.cli.app import app

    app(prog_name="foundry")
