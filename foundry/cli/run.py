"""`foundry run`: starts a command in one of the modes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from foundry import launches
from foundry.cli import hook, probe
from foundry.modes import ARCHIVE_VARIABLE, MODE_VARIABLE, Mode

# As shells and `env` have it.
FAILED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127


def default_archive(env: Mapping[str, str]) -> str:
    """Where archives lie if nobody says: one per fingerprint, beside each other."""
    cache = env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home(), ".cache")
    return str(Path(cache, "foundry", "archive"))


def environment(mode: Mode, archive: str | None, env: Mapping[str, str], command: Sequence[str] = ()) -> dict[str, str]:
    """The command's environment. Raises hook.NoHook if the hook is needed and cannot be had."""
    made = {**env, MODE_VARIABLE: mode}
    if archive is not None:
        made[ARCHIVE_VARIABLE] = os.path.abspath(archive)
    if mode == "off":
        return made
    if not made.get(ARCHIVE_VARIABLE) and (mode == "load" or _has_parent(default_archive(env))):
        made[ARCHIVE_VARIABLE] = default_archive(env)
    if mode == "load":
        return made
    # The child must not write an archive or journal anything while it is asked.
    answer = probe.ask({**env, MODE_VARIABLE: "off"})
    if answer.problem is not None and not env.get(hook.SM_VARIABLE):
        if mode == "auto":
            return made  # without a driver there is nothing to save
        raise hook.NoHook(
            f"{answer.problem}; `foundry doctor` looks further. On a machine without a GPU "
            "`python -m foundry.recipes.quickstart` shows SAVE and LOAD on a simulated driver"
        )
    if mode == "auto":
        launch = launches.key(command, env, answer.devices[0].fields if answer.devices else {})
        made[launches.LAUNCH_VARIABLE] = launch
        if made.get(ARCHIVE_VARIABLE) and _fits(made[ARCHIVE_VARIABLE], answer.devices, launch):
            return made
    return hook.with_preload(made, hook.hook_library(hook.target_for(answer.devices, env), env))


def _has_parent(archive: str) -> bool:
    """Makes the folder of archives that nobody named; nobody else may write there: an archive is code that runs.

    Where that is not possible no archive is named. Most programs name their own; the others are told to.
    """
    try:
        os.makedirs(os.path.dirname(archive), mode=0o700, exist_ok=True)
    except OSError:
        return False
    return True


def _fits(archive: str, devices: Sequence[probe.Device], launch: str) -> bool:
    """Whether an archive of this name (or one that `auto` saved beside it) is for the first device and this start."""
    from foundry import _core, archive_json
    from foundry.fingerprint import Fingerprint

    if not devices:
        return False
    fields = devices[0].fields
    for path in launches.candidates(archive):
        if not launches.served(path, launch):
            continue
        try:
            saved = archive_json.read(path).fingerprint
        except _core.FoundryError:
            continue
        known = Fingerprint({name: v for name, v in saved.values.items() if name in fields}, saved.rules)
        if not known.differences(Fingerprint(fields, saved.rules)):
            return True
    return False


def run(mode: Mode, archive: str | None, command: Sequence[str]) -> NoReturn:
    """Becomes the command; returns never. Exits with FAILED, NOT_EXECUTABLE or NOT_FOUND if it cannot."""
    try:
        env = environment(mode, archive, os.environ, command)
    except hook.NoHook as problem:
        _fail(FAILED, str(problem))
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], list(command), env)
    except FileNotFoundError:
        _fail(NOT_FOUND, f"{command[0]}: there is no such command")
    except OSError as problem:
        _fail(NOT_EXECUTABLE, f"{command[0]} cannot be started: {problem.strerror}")


def _fail(code: int, sentence: str) -> NoReturn:
    print(f"foundry: {sentence}", file=sys.stderr)
    raise SystemExit(code)
