"""What a child process finds out about driver, devices and hook, so that a crash or a context there harms nobody.

Run as a program it prints one line of JSON; `ask` starts it and reads the line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 120
_MARK = "foundry-probe:"


@dataclass
class Device:
    """A GPU; `fields` are the device's fields of the fingerprint."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class Answer:
    """`problem` is a sentence if there is no usable driver or no extension; `owner` is "hook" or "core"."""

    problem: str | None
    devices: list[Device]
    owner: str = ""
    sm_target: int = 0
    diagnoses: list[str] = field(default_factory=list)
    zone: str | None = None
    framework: str | None = None


def ask(env: dict[str, str] | None = None, zone: bool = False, framework: bool = False) -> Answer:
    """Starts the child with `env` (None: this environment). `zone`: also opens a zone; `framework`: also asks PyTorch."""
    command = [sys.executable, "-m", "foundry.cli.probe"]
    command += ["--zone"] * zone + ["--framework"] * framework
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return Answer(f"a child process that asks the driver did not answer: {failure}", [])
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Answer(f"a child process that asks the driver ended with code {done.returncode}: {last}", [])
    document = json.loads(lines[-1].removeprefix(_MARK))
    devices = [
        Device(d["ordinal"], d["name"], (d["capability"][0], d["capability"][1]), d["fields"])
        for d in document.pop("devices")
    ]
    return Answer(devices=devices, **document)


def _main(arguments: list[str]) -> None:
    answer: dict[str, Any] = {"problem": None, "devices": []}
    try:
        from foundry import _core
    except ImportError as problem:
        answer["problem"] = f"Foundry's extension cannot be loaded: {problem}"
    else:
        _ask_core(_core, answer, "--zone" in arguments)
    if "--framework" in arguments:
        answer["framework"] = _ask_framework()
    sys.stdout.write(f"{_MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()


def _ask_core(core: Any, answer: dict[str, Any], zone: bool) -> None:
    from foundry.fingerprint import device_fields

    try:
        answer["problem"] = core.driver_available()
        if answer["problem"] is not None:
            return
        for ordinal in range(core.device_count()):
            info = core.device_info(ordinal)
            answer["devices"].append(
                {
                    "ordinal": ordinal,
                    "name": info.name,
                    "capability": [info.major, info.minor],
                    "fields": device_fields(ordinal),
                }
            )
        owner = core.owner()
        answer["owner"], answer["sm_target"] = owner.name, owner.sm_target
        if zone and answer["devices"]:
            answer["zone"] = _try_zone(core)
        answer["diagnoses"] = core.diagnoses()
    except core.FoundryError as problem:
        answer["problem"] = str(problem)


def _try_zone(core: Any) -> str:
    try:
        slot = core.zone_open(0, "doctor", "private")
        address = core.zone_alloc(slot, 1 << 20)
        core.write_memory(address, b"foundry")
        good = core.read_memory(address, 7) == b"foundry"
        core.zone_free(address)
        core.zone_close(slot)
    except core.FoundryError as problem:
        return str(problem)
    return "" if good else f"memory at {address:#x} does not hold what was written to it"


def _ask_framework() -> str:
    try:
        import torch
    except ImportError:
        return "none"
    except Exception as problem:  # a broken installation can raise anything
        return f"PyTorch cannot be imported: {problem}"
    from foundry.torch import settings

    problem_ = settings.problem()
    return f"torch {torch.__version__}" if problem_ is None else problem_


if __name__ == "__main__":
    _main(sys.argv[1:])
    # Exit handlers of drivers and frameworks have nothing to add.
    os._exit(0)
