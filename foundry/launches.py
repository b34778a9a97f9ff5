"""Which starts an archive has served: so that the launcher knows, before a process exists, whether it needs the hook.

Beside an archive A lies A.launches, a JSON list of keys. A key stands for a command, what it runs on and with: a start
with a known key LOADs without the hook; any other gets the hook, and the session decides.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foundry.report import Report

log = logging.getLogger("foundry")

LAUNCH_VARIABLE = "FOUNDRY_LAUNCH"
SUFFIX = ".launches"
# What decides which archive fits and can be told from outside.
_PACKAGES = ("torch", "vllm", "sglang", "foundry")
_VARIABLES = ("VLLM_", "SGLANG_", "PYTORCH_", "CUDA_VISIBLE_DEVICES", "FOUNDRY_SM")
_MOST_KEYS = 256
_DIGITS = 8  # of a fingerprint's key, in the name of an archive beside another
_MOST_BYTES = 1 << 16


def key(command: Sequence[str], env: Mapping[str, str], device: Mapping[str, object]) -> str:
    """32 hexadecimal digits for a command, its environment, installed versions, models that it names, and the device."""
    facts = {
        "command": list(command),
        "environment": {name: value for name, value in env.items() if name.startswith(_VARIABLES)},
        "packages": {name: _version(name) for name in _PACKAGES},
        "models": [_digest(Path(word, "config.json")) for word in command],
        "device": dict(device),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def served(archive: str, launch: str) -> bool:
    """Whether the archive has served a start with that key. A list that cannot be read has served nobody."""
    return launch in _read(archive)


def record(archive: str, launch: str, good: bool) -> None:
    """Notes that the archive has served that start, or that it was refused. Never raises: the next start gets the hook."""
    before = _read(archive)
    if not good and launch not in before:
        return
    keys = [known for known in before if known != launch]
    if good:
        keys = [*keys[1 - _MOST_KEYS :], launch]
    path = Path(archive + SUFFIX)
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            json.dump(keys, file)
        os.replace(file.name, path)
    except OSError as problem:
        log.debug("%s cannot be written: %s", path, problem)


def settle(archive: str, report: Report) -> None:
    """A session is over that the launcher started, which asked for that archive. The next start is to save if it is no use."""
    launch = os.environ.get(LAUNCH_VARIABLE)
    if not launch:
        return
    if report.outcome in ("saved", "restored") and not report.damaged:
        record(report.archive, launch, True)
    else:
        for path in candidates(archive):
            record(path, launch, False)


def refuse(archive: str) -> None:
    """The archive is found damaged, perhaps long after the session: the next start is to save anew."""
    launch = os.environ.get(LAUNCH_VARIABLE)
    if launch:
        record(archive, launch, False)


def candidates(archive: str) -> list[str]:
    """The archive of that name and those that mode "auto" saved beside it for other fingerprints."""
    return [archive, *sorted(glob.glob(sibling(glob.escape(archive), "?" * _DIGITS)))]


def sibling(archive: str, fingerprint_key: str) -> str:
    """Where mode "auto" saves for another fingerprint than the archive's."""
    return f"{archive}-{fingerprint_key[:_DIGITS]}"


def _read(archive: str) -> list[str]:
    try:
        with open(archive + SUFFIX, encoding="ascii") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return []
    return [known for known in found if isinstance(known, str)] if isinstance(found, list) else []
