"""Which of SAVE, LOAD and native a session does, and with which archive."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from foundry import archive_json, launches
from foundry.errors import error
from foundry.fingerprint import Fingerprint, Mismatch

if TYPE_CHECKING:
    from foundry.archive_json import Manifest

Mode = Literal["auto", "save", "load", "off"]
OnMismatch = Literal["fallback", "fail"]

MODES: tuple[Mode, ...] = ("auto", "save", "load", "off")
MODE_VARIABLE = "FOUNDRY_MODE"
ARCHIVE_VARIABLE = "FOUNDRY_ARCHIVE"
MISMATCH_VARIABLE = "FOUNDRY_ON_MISMATCH"
GOLDEN_VARIABLE = "FOUNDRY_GOLDEN"
VERIFY_VARIABLE = "FOUNDRY_VERIFY"
COMPACT_VARIABLE = "FOUNDRY_COMPACT"
EXEC_BUDGET_VARIABLE = "FOUNDRY_EXEC_BUDGET"
VERIFY_REPORT_VARIABLE = "FOUNDRY_VERIFY_REPORT"
LAUNCHER = "foundry run --save -- python ..."


@dataclass
class Decision:
    """What to do. action "native": capture as if Foundry were absent, for `reason`."""

    action: Literal["save", "load", "native"]
    path: str
    manifest: Manifest | None = None
    reason: str = ""
    mismatches: list[Mismatch] = field(default_factory=list)


def chosen_mode(mode: str) -> Mode:
    """`mode`, or for "auto" what the launcher set in the environment. Raises ValueError for anything else."""
    source = "the mode"
    if mode == "auto" and os.environ.get(MODE_VARIABLE):
        source, mode = MODE_VARIABLE, os.environ[MODE_VARIABLE]
    for known in MODES:
        if mode == known:
            return known
    raise ValueError(f"{source} is {mode!r}, not one of {', '.join(MODES)}")


def chosen_path(path: str | os.PathLike[str] | None) -> str:
    """`path`, or for None the launcher's. Raises ValueError if there is neither."""
    found = os.environ.get(ARCHIVE_VARIABLE) if path is None else os.fspath(path)
    if not found:
        raise ValueError(
            f"no archive is named: give session() a path, set {ARCHIVE_VARIABLE}, or start with `foundry run --archive DIR`"
        )
    return found


def chosen_reaction(on_mismatch: str | None) -> OnMismatch:
    """`on_mismatch`, or for None the environment's, or "fallback". Raises ValueError for anything else."""
    source = "on_mismatch" if on_mismatch else MISMATCH_VARIABLE
    found = on_mismatch or os.environ.get(MISMATCH_VARIABLE) or "fallback"
    if found not in ("fallback", "fail"):
        raise ValueError(f"{source} is {found!r}, not 'fallback' or 'fail'")
    return cast(OnMismatch, found)


def chosen_golden(golden: bool | None) -> bool:
    """`golden`, or for None the environment's, or no. Raises ValueError for a value that is neither 0 nor 1."""
    return _chosen(golden, GOLDEN_VARIABLE)


def chosen_verify(verify: bool | None) -> bool:
    """`verify`, or for None the environment's, or no. Raises ValueError for a value that is neither 0 nor 1."""
    return _chosen(verify, VERIFY_VARIABLE)


def chosen_compact(compact: bool | None) -> bool:
    """`compact`, or for None the environment's, or no. Raises ValueError for a value that is neither 0 nor 1."""
    return _chosen(compact, COMPACT_VARIABLE)


def chosen_exec_budget(budget: int | None) -> int:
    """`budget` in bytes, or for None the environment's; 0 for no bound. Raises ValueError for what is no such number."""
    if budget is None:
        found = os.environ.get(EXEC_BUDGET_VARIABLE) or "0"
        if not (found.isascii() and found.isdigit()):
            raise ValueError(f"{EXEC_BUDGET_VARIABLE} is {found!r}, not a number of bytes")
        budget = int(found)
    if not 0 <= budget < 1 << 63:
        raise ValueError(f"exec_budget is {budget}, which is no number of bytes")
    return budget


def _chosen(value: bool | None, variable: str) -> bool:
    if value is not None:
        return value
    found = os.environ.get(variable) or "0"
    if found not in ("0", "1"):
        raise ValueError(f"{variable} is {found!r}, not 0 or 1")
    return found == "1"


def hook_present() -> bool:
    """Whether the hook was preloaded into this process."""
    from foundry import _core

    return _core.owner().name == "hook"


def decide(mode: Mode, path: str, here: Fingerprint) -> Decision:
    """Compares before anything is touched.

    Raises FoundryError: for "save" without the hook, for "load" of an archive that cannot be read.
    """
    if mode == "save":
        if not hook_present():
            raise error("state", f"SAVE needs libcuda_hook.so preloaded: start the program with `{LAUNCHER}`")
        return Decision("save", path)
    if mode == "load":
        return _compare(path, here)
    return _auto(path, here)


def _compare(path: str, here: Fingerprint) -> Decision:
    manifest = archive_json.read(path)
    mismatches = manifest.fingerprint.differences(here)
    if mismatches:
        fields = ", ".join(m.field for m in mismatches)
        reason = f"the archive {path} was saved for something else ({fields} differ)"
        return Decision("native", path, manifest, reason, mismatches)
    return Decision("load", path, manifest)


def _auto(path: str, here: Fingerprint) -> Decision:
    from foundry import _core

    sibling = launches.sibling(path, here.key())
    refused: list[Decision] = []
    for candidate in (path, sibling):
        if not os.path.lexists(candidate):
            continue
        try:
            decision = _compare(candidate, here)
        except _core.FoundryError as problem:
            decision = Decision("native", candidate, reason=str(problem))
        if decision.action == "load":
            return decision
        refused.append(decision)
    if hook_present():
        # An archive of something else stays; a broken or outdated one of ours is replaced.
        taken = any(r.path == path and r.mismatches for r in refused)
        return Decision("save", sibling if taken else path, reason=_reasons(refused))
    reason = _reasons(refused) or f"there is no archive {path}"
    return Decision(
        "native",
        path,
        reason=f"{reason}, and to save one the program must be started with `{LAUNCHER}`",
        mismatches=refused[0].mismatches if refused else [],
    )


def _reasons(refused: Sequence[Decision]) -> str:
    return "; ".join(decision.reason for decision in refused)
