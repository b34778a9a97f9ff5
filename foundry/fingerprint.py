"""What must be equal for an archive to be usable here, field by field, each with how it is compared."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from foundry.text import table

if TYPE_CHECKING:
    from foundry.runtime import Runtime

Rule = Literal["exact", "at_least", "information"]
Value = str | int | float | bool

RULES: Mapping[Rule, str] = {
    "exact": "must be equal",
    "at_least": "at least the archive's",
    "information": "not compared",
}


@dataclass(frozen=True)
class Field:
    """One field: how it is compared and who knows it ("device", "core", "framework", "host")."""

    name: str
    rule: Rule
    source: str
    meaning: str


# The one table. A caller's own fields (model, quantization, flags, ...) are added as `exact`.
FIELDS: tuple[Field, ...] = (
    Field("format_version", "exact", "core", "version of the archive format"),
    Field("gpu_name", "exact", "device", "name of the GPU"),
    Field("compute_capability", "exact", "device", "architecture that the machine code is for"),
    Field("sm_count", "exact", "device", "multiprocessors; libraries choose kernels and scratch sizes by it"),
    Field("total_memory", "at_least", "device", "bytes of device memory"),
    Field("driver_version", "exact", "device", "CUDA version of the driver, as cuDriverGetVersion"),
    Field("framework", "exact", "framework", "who owns tensors and captures"),
    Field("framework_version", "exact", "framework", "its version"),
    Field("cuda_version", "exact", "framework", "CUDA toolkit that the framework was built with"),
    Field("allocator_settings", "exact", "framework", "settings that change where allocations land"),
    Field("library_version", "information", "core", "version of Foundry"),
    Field("hook_sm_target", "information", "core", "build of the hook, 0 without it"),
    Field("driver_release", "information", "host", "release of the kernel driver"),
    Field("module_loading", "information", "host", "CUDA_MODULE_LOADING: when the driver loads a kernel's code"),
    Field("python_version", "information", "host", "version of Python"),
    Field("host_name", "information", "host", "name of the machine"),
    Field("created", "information", "host", "time in UTC"),
)
_BY_NAME = {field.name: field for field in FIELDS}


@dataclass(frozen=True)
class Mismatch:
    """A field that differs. `archive` or `here` is None where that side lacks the field."""

    field: str
    archive: Value | None
    here: Value | None
    rule: Rule


@dataclass(frozen=True)
class Fingerprint:
    """Values and rules by field name."""

    values: Mapping[str, Value]
    rules: Mapping[str, Rule]

    def differences(self, here: Fingerprint) -> list[Mismatch]:
        """What keeps an archive with this fingerprint from being used where `here` was taken."""
        found = []
        for name in dict.fromkeys([*self.values, *here.values]):
            # Rules of known fields come from this version's table, of others from whichever side has them.
            rule = _BY_NAME[name].rule if name in _BY_NAME else here.rules.get(name, self.rules.get(name, "exact"))
            mine, theirs = self.values.get(name), here.values.get(name)
            if not _fits(rule, mine, theirs):
                found.append(Mismatch(name, mine, theirs, rule))
        return found

    def key(self) -> str:
        """32 hexadecimal digits, equal for fingerprints that agree in every exact field."""
        exact = {name: value for name, value in self.values.items() if self.rules[name] == "exact"}
        text = json.dumps(exact, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _fits(rule: Rule, archive: Value | None, here: Value | None) -> bool:
    if rule == "information":
        return True
    if archive is None or here is None:
        return False
    if rule == "at_least":
        return _number(archive) and _number(here) and here >= archive  # type: ignore[operator]
    return type(archive) is type(here) and archive == here


def _number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def mismatch_table(mismatches: Sequence[Mismatch]) -> str:
    """The mismatches as a table of field, archive, here, rule."""
    return table(
        ("field", "archive", "here", "rule"),
        [(m.field, _shown(m.archive), _shown(m.here), RULES[m.rule]) for m in mismatches],
    )


def _shown(value: Value | None) -> str:
    return "(absent)" if value is None else str(value)


def device_fields(ordinal: int) -> dict[str, Value]:
    """Fields that the driver knows. Raises FoundryError without a driver."""
    from foundry import _core

    device = _core.device_info(ordinal)
    return {
        "gpu_name": device.name,
        "compute_capability": f"{device.major}.{device.minor}",
        "sm_count": device.sm_count,
        "total_memory": device.total_memory,
        "driver_version": device.driver_version,
    }


def core_fields() -> dict[str, Value]:
    """Fields that the core knows."""
    from foundry import _core

    return {
        "format_version": _core.FORMAT_VERSION,
        "library_version": _core.VERSION,
        "hook_sm_target": _core.owner().sm_target,
    }


def host_fields() -> dict[str, Value]:
    """Fields that only inform."""
    return {
        "driver_release": _driver_release(),
        "module_loading": os.environ.get("CUDA_MODULE_LOADING") or "default",
        "python_version": platform.python_version(),
        "host_name": socket.gethostname(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _driver_release() -> str:
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            words = file.readline(4096).split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[:1].isdigit() and "." in word), "unknown")


def take(runtime: Runtime, device: int, extra: Mapping[str, object] | None = None) -> Fingerprint:
    """The fingerprint of this process.

    `extra` are the caller's own fields: str, int, float, bool, or anything that JSON can write (kept as its text).
    Raises FoundryError without a driver, ValueError for an extra field that has the name of one of ours.
    """
    values: dict[str, Value] = {"framework": runtime.name, **core_fields(), **device_fields(device), **host_fields()}
    values.update(runtime.fingerprint())
    rules: dict[str, Rule] = {name: _BY_NAME[name].rule if name in _BY_NAME else "exact" for name in values}
    for name, value in (extra or {}).items():
        if name in _BY_NAME or name in values:
            raise ValueError(f"the fingerprint field {name!r} is Foundry's own: choose another name")
        values[name] = _plain(name, value)
        rules[name] = "exact"
    return Fingerprint(values, rules)


def _plain(name: str, value: object) -> Value:
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        raise ValueError(
            f"the fingerprint field {name!r} is a {type(value).__name__}: give text, a number or what JSON can write"
        ) from None
