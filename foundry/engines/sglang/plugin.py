"""Puts the adapter for the installed SGLang around its seams. Cheap: no CUDA."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
from typing import TYPE_CHECKING

from foundry.engines.common import seams as common
from foundry.engines.sglang import seams

if TYPE_CHECKING:
    from foundry.engines.sglang.adapter import Adapter
    from foundry.report import Report

# Releases whose adapter has been run on a GPU; others are served natively unless FOUNDRY_SGLANG_UNTRIED=1.
TRIED = ("0.5.13",)
UNTRIED_VARIABLE = "FOUNDRY_SGLANG_UNTRIED"

_installed = False
_adapter: Adapter | None = None


def say(line: str) -> None:
    """One line in the log of the process, which SGLang formats."""
    logging.getLogger("sglang.foundry").info("Foundry: %s", line.removeprefix("Foundry: "))


def install() -> None:
    """Registers the hooks; later calls do nothing. Whatever does not fit ends in native serving and one line.

    Raises SystemExit where the user asked for an error instead: SGLang swallows exceptions of plugins.
    """
    global _adapter, _installed
    if _installed:
        return
    _installed = True
    problem = _problem()
    if problem:
        _refuse(problem)
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    _adapter = adapter_for(adapter_name())
    for target, function in _adapter.hooks():
        HookRegistry.register(target, function, HookType.AROUND)


def report() -> Report | None:
    """What Foundry did in this process; None where it took no part."""
    return None if _adapter is None else _adapter.report


def adapter_name() -> str:
    """Which adapter the installed release needs."""
    return "classic" if importlib.util.find_spec(seams.CLASSIC_RUNNER) is not None else "backends"


def adapter_for(name: str) -> Adapter:
    """The adapter of that name; imports SGLang."""
    if name == "classic":
        from foundry.engines.sglang.classic import Classic

        return Classic()
    from foundry.engines.sglang.backends import Backends

    return Backends()


def _problem() -> str:
    try:
        release = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return "SGLang is not installed as a package"
    name = adapter_name()
    found = common.problems((*seams.COMMON, *seams.ADAPTERS[name]))
    if found:
        return f"SGLang {release} is not one that the plugin knows: {'; '.join(found)}"
    if release not in TRIED and os.environ.get(UNTRIED_VARIABLE) != "1":
        return (
            f"SGLang {release} fits the plugin, which has not been run with it on a GPU yet: "
            f"set {UNTRIED_VARIABLE}=1 to try"
        )
    return ""


def _refuse(problem: str) -> None:
    from foundry import modes

    if modes.chosen_reaction(None) == "fail":
        raise SystemExit(f"Foundry: {problem}")
    say(f"serving natively: {problem}")
