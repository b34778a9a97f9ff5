"""Which libcuda_hook.so a device needs, and the environment that preloads it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from foundry.cli.probe import Device

HOOK_NAME = "libcuda_hook.so"
SM_VARIABLE = "FOUNDRY_SM"
LIBRARY_VARIABLE = "FOUNDRY_HOOK_LIBRARY"
TARGETS = (80, 90)


class NoHook(Exception):
    """There is no hook for this machine; str() is the sentence."""


def library_folder() -> Path:
    """Where the package has its builds of the hook."""
    return Path(__file__).absolute().parent.parent / "lib"


def target_for(devices: Sequence[Device], env: Mapping[str, str]) -> int:
    """The sm target: FOUNDRY_SM, else the first visible device's. Raises NoHook."""
    wanted = env.get(SM_VARIABLE, "").removeprefix("sm_")
    if wanted:
        if wanted not in [str(target) for target in TARGETS]:
            raise NoHook(f"{SM_VARIABLE} is {wanted!r}; there are builds for {' and '.join(map(str, TARGETS))}")
        return int(wanted)
    if not devices:
        raise NoHook(f"there is no CUDA device to choose the hook for; set {SM_VARIABLE} to 80 or 90")
    first = devices[0]
    major, minor = first.capability
    if major < 8:
        raise NoHook(f"{first.name} has compute capability {major}.{minor}; Foundry needs 8.0 or later")
    # The sm_80 build carries PTX and so runs on everything newer; sm_90 has machine code for 9.0 alone.
    return 90 if (major, minor) == (9, 0) else 80


def hook_library(target: int, env: Mapping[str, str]) -> Path:
    """The file to preload. Raises NoHook if it is not there or the loader could not name it."""
    given = env.get(LIBRARY_VARIABLE)
    path = Path(given).absolute() if given else library_folder() / f"sm_{target}" / HOOK_NAME
    if not path.is_file():
        raise NoHook(f"{path} does not exist: this installation has no hook for sm_{target}")
    if any(char in str(path) for char in " :"):
        raise NoHook(f"{path} has a blank or a colon in its name, which LD_PRELOAD cannot express: install elsewhere")
    return path


def preloaded(value: str | None) -> list[str]:
    """The entries of an LD_PRELOAD."""
    return [entry for entry in (value or "").replace(":", " ").split() if entry]


def with_preload(env: Mapping[str, str], library: Path) -> dict[str, str]:
    """`env` with the hook first in LD_PRELOAD, other entries kept in order, an older entry of the hook replaced."""
    others = [entry for entry in preloaded(env.get("LD_PRELOAD")) if os.path.basename(entry) != HOOK_NAME]
    return {**env, "LD_PRELOAD": ":".join([str(library), *others])}
