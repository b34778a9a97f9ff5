"""The journal of a LOAD: written where FOUNDRY_JOURNAL_FILE says, and what it says about tensors that moved."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foundry import _core, diff

if TYPE_CHECKING:
    from foundry.report import Report

FILE_VARIABLE = "FOUNDRY_JOURNAL_FILE"


def finish(archive: str, inventory: Sequence[tuple[str, int, str]], rank: int, device: int, report: Report) -> None:
    """Writes this process's journal, and names the first divergence if a tensor is not where SAVE had it.

    Nothing here can fail a LOAD: what goes wrong becomes a warning of the report.
    """
    path = os.environ.get(FILE_VARIABLE, "")
    try:
        if not _core.journal_recorded():
            if path:
                report.warnings.append(
                    f"{FILE_VARIABLE} is set, but there is no journal: set FOUNDRY_JOURNAL=stacks too"
                )
            return
        if path:
            with report.step("journal"):
                _core.write_journal(device, os.path.abspath(path))
        if report.reseated or report.differences:
            report.divergence = first_divergence(archive, inventory, rank, device, path)
    except _core.FoundryError as problem:
        report.warnings.append(f"the journal is of no use: {problem}")


def first_divergence(archive: str, inventory: Sequence[tuple[str, int, str]], rank: int, device: int, path: str) -> str:
    """A sentence about the first allocation that differs, "" where the journals are alike or the archive has none."""
    save = _core.Journal.of_archive(archive, rank, list(inventory))
    if save.events == 0:
        return ""
    for zone in diff.compare(save, _core.Journal.of_process(device)):
        if zone.first is not None:
            command = f"foundry diff {archive} {path or f'JOURNAL (name one with {FILE_VARIABLE})'}"
            return f"first divergence: {zone.sentence(zone.first)}; `{command}` shows who made it"
    return ""
