"""The places of an engine that a plugin holds on to: one table per engine, from which the check at import, the contract
tests over releases and the tables in the docs are made."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seam:
    """One function, class or attribute of an engine.

    `name` is dotted inside `module`. `parameters`: names that a function must take, in this order and before any other
    it may have, self and cls left out; None where the signature does not matter. `use`: what it is for. `adapter`: the
    part of the plugin that needs it ("" is all of them). `attributes`: names that objects of the class have, be they
    fields, methods or set by one of its methods.
    """

    module: str
    name: str
    use: str
    parameters: tuple[str, ...] | None = None
    adapter: str = ""
    attributes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


def find(seam: Seam) -> Any:
    """The object. Raises LookupError with a sentence."""
    try:
        found: Any = importlib.import_module(seam.module)
    except ImportError as problem:
        raise LookupError(f"{seam.module} cannot be imported ({problem})") from None
    for part in seam.name.split("."):
        try:
            found = inspect.getattr_static(found, part)
        except AttributeError:
            raise LookupError(f"{seam.module} has no {seam.name}") from None
    return found


def check(seam: Seam) -> str:
    """Why the seam is not as the plugin needs it, a sentence; "" if it is. Imports the module."""
    try:
        found = find(seam)
    except LookupError as problem:
        return str(problem)
    if seam.attributes:
        if not inspect.isclass(found):
            return f"{seam} is no class any more"
        missing = lacking(seam, _attributes(found))
        if missing:
            return missing
    if seam.parameters is None:
        return ""
    function = inspect.unwrap(_plain(found))
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return f"{seam} is no function any more"
    return compare(seam, names)


def _plain(found: Any) -> Callable[..., Any]:
    if isinstance(found, (classmethod, staticmethod)):
        function: Callable[..., Any] = found.__func__
        return function
    if inspect.isclass(found):
        return _plain(inspect.getattr_static(found, "__init__"))
    given: Callable[..., Any] = found
    return given


def _attributes(owner: type) -> set[str]:
    """Names in the class and its bases, and those that their methods mention: what a method sets is among them."""
    names: set[str] = set()
    for kind in owner.__mro__[:-1]:
        names.update(kind.__dict__, getattr(kind, "__annotations__", ()), getattr(kind, "_member_map_", ()))
        for member in kind.__dict__.values():
            wrapped = getattr(member, "fget", None) or getattr(member, "func", None) or member
            code = getattr(inspect.unwrap(getattr(wrapped, "__func__", wrapped)), "__code__", None)
            names.update(code.co_names if code is not None else ())
    return names


def lacking(seam: Seam, names: Collection[str]) -> str:
    """Which of the seam's attributes are not among the names of what was found, a sentence; "" if none."""
    missing = [name for name in seam.attributes if name not in names]
    return f"{seam} has no {', '.join(missing)}" if missing else ""


def compare(seam: Seam, names: Sequence[str]) -> str:
    """The same for the parameter names of what was found (self and cls included)."""
    taken = [name for name in names if name not in ("self", "cls")]
    wanted = list(seam.parameters or ())
    if taken[: len(wanted)] != wanted:
        return f"{seam} takes ({', '.join(taken)}), the plugin knows ({', '.join(wanted)}, ...)"
    return ""


def problems(seams: Iterable[Seam]) -> list[str]:
    """What is wrong with all of them, in order."""
    return [problem for problem in map(check, seams) if problem]
