"""`foundry doctor`: whether SAVE and LOAD can work on this machine, and if not, what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from foundry.cli import hook, probe
from foundry.modes import MODE_VARIABLE

Status = Literal["ok", "warning", "problem", "skipped"]

# Where zones lie: see csrc/abi/foundry_abi.h.
ZONES_BEGIN, ZONES_END = 0x1137_0000_0000, 0x5137_0000_0000  # csrc/layout/zones.h
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ")


@dataclass(frozen=True)
class Check:
    """One line of the diagnosis."""

    name: str
    status: Status
    sentence: str


def examine(env: Mapping[str, str], archive: str | None) -> list[Check]:
    """All checks, in an order in which later ones may depend on earlier ones."""
    plain = probe.ask({**env, MODE_VARIABLE: "off"}, zone=True, framework=True)
    checks = [_driver(plain), *_devices(plain), _framework(plain), _addresses(plain)]
    checks += [*_hook(plain, env), _interposers(env)]
    if archive is not None:
        checks += _archive(archive, plain)
    return checks


def healthy(checks: list[Check]) -> bool:
    """Whether nothing is a problem."""
    return all(check.status != "problem" for check in checks)


def as_json(checks: list[Check]) -> dict[str, Any]:
    """The document of --json."""
    return {"healthy": healthy(checks), "checks": [asdict(check) for check in checks]}


_DRIVER = (
    "; install NVIDIA's driver, or give a container access to the GPU (docker run --gpus all). Without a GPU "
    "`python -m foundry.recipes.quickstart` uses a simulated driver"
)


def _driver(answer: probe.Answer) -> Check:
    if answer.problem is not None:
        return Check("driver", "problem", answer.problem + (_DRIVER if answer.problem.startswith("no CUDA") else ""))
    version = answer.devices[0].fields["driver_version"] if answer.devices else 0
    return Check("driver", "ok", f"a CUDA {version // 1000}.{version % 1000 // 10} driver answers")


def _devices(answer: probe.Answer) -> list[Check]:
    if answer.problem is not None:
        return [Check("gpu", "skipped", "there is no driver to ask")]
    if not answer.devices:
        return [Check("gpu", "problem", "the driver sees no GPU: check CUDA_VISIBLE_DEVICES")]
    checks = []
    for device in answer.devices:
        major, minor = device.capability
        text = f"{device.ordinal}: {device.name}, sm_{major}{minor}, {device.fields['sm_count']} multiprocessors"
        checks.append(Check("gpu", "ok" if major >= 8 else "problem", text + ("" if major >= 8 else ": 8.0 is needed")))
    return checks


def _framework(answer: probe.Answer) -> Check:
    found = answer.framework or "none"
    if found == "none":
        return Check("torch", "warning", "PyTorch is not installed: only engines with a runtime of their own can work")
    if found.startswith("torch "):
        return Check("torch", "ok", found)
    # Without a driver this follows from the first check.
    return Check("torch", "skipped" if answer.problem is not None else "problem", found)


def _addresses(answer: probe.Answer) -> Check:
    taken = _taken()
    if taken:
        return Check("addresses", "problem", f"the addresses of zones are in use in a plain process: {taken[0]}")
    if answer.zone is None:
        return Check("addresses", "ok", "the addresses of zones are free (not tried: no GPU)")
    if answer.zone:
        return Check("addresses", "problem", answer.zone)
    return Check("addresses", "ok", "a zone can be opened, mapped and written")


def _taken() -> list[str]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        match = _MAPPING.match(line)
        if match and int(match[1], 16) < ZONES_END and int(match[2], 16) > ZONES_BEGIN:
            found.append(line)
    return found


def _hook(plain: probe.Answer, env: Mapping[str, str]) -> list[Check]:
    try:
        target = hook.target_for(plain.devices, env)
        library = hook.hook_library(target, env)
    except hook.NoHook as problem:
        if plain.problem is not None and not env.get(hook.SM_VARIABLE):
            return [Check("hook", "skipped", "there is no GPU to choose the build for")]
        return [Check("hook", "problem", str(problem))]
    if plain.problem is not None:
        return [Check("hook", "ok", f"{library} is there (not tried: no driver)")]
    under = probe.ask({**hook.with_preload(env, library), MODE_VARIABLE: "save"})
    if under.problem is not None:
        return [Check("hook", "problem", f"under {library}: {under.problem}")]
    if under.owner != "hook":
        return [Check("hook", "problem", f"{library} is preloaded into a child and does not answer there")]
    checks = [Check("hook", "ok", f"{library} (sm_{under.sm_target}) is preloaded into children and works")]
    return checks + [Check("hook", "warning", sentence) for sentence in under.diagnoses]


def _interposers(env: Mapping[str, str]) -> Check:
    entries = hook.preloaded(env.get("LD_PRELOAD"))
    try:
        with open("/etc/ld.so.preload", encoding="utf-8", errors="replace") as file:
            entries += hook.preloaded(" ".join(file.read().split()))
    except OSError:
        pass
    others = [entry for entry in entries if os.path.basename(entry) != hook.HOOK_NAME]
    if not others:
        return Check("interposers", "ok", "nothing else is preloaded")
    return Check("interposers", "warning", f"also preloaded: {', '.join(others)}; if SAVE misbehaves, try without")


def _archive(path: str, answer: probe.Answer) -> list[Check]:
    if answer.problem is not None and "extension" in answer.problem:
        return [Check("archive", "skipped", "it cannot be read without Foundry's extension")]
    from foundry import _core, archive_json
    from foundry.fingerprint import Fingerprint

    try:
        manifest = archive_json.read(path)
        _core.Archive(path, 0, list(manifest.inventory)).verify_images()
        warnings = _core.archive_warnings(path)
    except _core.FoundryError as problem:
        return [Check("archive", "problem", str(problem))]
    checks = [Check("archive", "warning", warning) for warning in warnings]
    if answer.devices:
        fields = answer.devices[0].fields
        saved = manifest.fingerprint
        known = Fingerprint({name: v for name, v in saved.values.items() if name in fields}, saved.rules)
        differing = known.differences(Fingerprint(fields, saved.rules))
        if differing:
            text = ", ".join(f"{m.field} {m.archive} there, {m.here} here" for m in differing)
            return [*checks, Check("archive", "problem", f"{path} was saved for another machine: {text}")]
    return [*checks, Check("archive", "ok", f"{path} is whole{' and fits this GPU' if answer.devices else ''}")]
