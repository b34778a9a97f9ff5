"""Looking for an engine's places at import: what is found, what fits, and the sentences where it does not."""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from foundry.engines.common.seams import Seam, check, compare, find, problems


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Base:
    shared: int

    def __init__(self, config: Any, device: Any) -> None:
        self.device = device

    def start(self, plan: Any) -> None:
        self.late = plan

    @classmethod
    def make(cls, name: str) -> None: ...

    @staticmethod
    def plain(a: int, b: int = 2, *rest: int, c: int = 3, **more: int) -> None: ...

    @decorated
    def wrapped(self, x: int) -> None:
        self.inside = x

    @property
    def asked(self) -> Any:
        raise AssertionError("a property was asked")

    @functools.cached_property
    def kept(self) -> int:
        self.by_kept = 1
        return 1


class Derived(Base):
    __slots__ = ("slot",)


class NoConstructor: ...


@dataclass
class Data:
    size: int
    limit: int = 2


class Mode(enum.Enum):
    FULL = 1


class Refusing(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    module = types.ModuleType("some_engine")
    module.__dict__.update(
        Base=Base,
        Derived=Derived,
        NoConstructor=NoConstructor,
        Data=Data,
        Mode=Mode,
        LIMIT=3,
        function=decorated(compare),
    )
    sys.modules["some_engine"] = module
    broken = types.ModuleType("broken_engine")
    sys.modules["broken_engine"] = broken
    yield
    del sys.modules["some_engine"], sys.modules["broken_engine"]


def seam(name: str, parameters: tuple[str, ...] | None = None, *attributes: str, module: str = "some_engine") -> Seam:
    return Seam(module, name, "", parameters, "", attributes)


@pytest.mark.parametrize(
    "there",
    [
        seam("Base"),
        seam("Base", ("config", "device")),
        seam("Base", ("config",)),
        seam("Derived", ("config", "device")),
        seam("Derived.start", ("plan",)),
        seam("Base.make", ("name",)),
        seam("Base.plain", ("a", "b", "rest", "c")),
        seam("Base.plain", ()),
        seam("Base.wrapped", ("x",)),
        seam("Base.asked"),
        seam("function", ("seam", "names")),
        seam("LIMIT"),
        seam("Mode.FULL"),
        seam("Data", ("size", "limit")),
        seam("Data", None, "size", "limit"),
        seam("Mode", None, "FULL"),
        seam("Derived", None, "device", "late", "inside", "by_kept", "shared", "slot", "asked", "kept", "make"),
    ],
    ids=str,
)
def test_fits(there: Seam) -> None:
    assert check(there) == ""


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (seam("x", module="no_engine"), "no_engine cannot be imported (No module named 'no_engine')"),
        (seam("Gone"), "some_engine has no Gone"),
        (seam("Base.gone"), "some_engine has no Base.gone"),
        (seam("Base.start.deeper"), "some_engine has no Base.start.deeper"),
        (seam("Base", ("device",)), "some_engine:Base takes (config, device), the plugin knows (device, ...)"),
        (seam("Base.start", ("plan", "b")), "some_engine:Base.start takes (plan), the plugin knows (plan, b, ...)"),
        (seam("Base.wrapped", ("y",)), "some_engine:Base.wrapped takes (x), the plugin knows (y, ...)"),
        (seam("LIMIT", ()), "some_engine:LIMIT is no function any more"),
        (seam("Base", None, "device", "gone", "lost"), "some_engine:Base has no gone, lost"),
        (seam("function", None, "x"), "some_engine:function is no class any more"),
        (seam("Mode", None, "PIECEWISE"), "some_engine:Mode has no PIECEWISE"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_does_not_fit(changed: Seam, sentence: str) -> None:
    assert check(changed) == sentence


def test_a_constructor_that_python_makes(recwarn: Any) -> None:
    assert "no function" in check(seam("NoConstructor", ("a",))) or "takes" in check(seam("NoConstructor", ("a",)))


def test_a_module_that_fails_to_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "half_engine.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert check(seam("x", module="half_engine")).startswith("half_engine cannot be imported (No module named 'a_lib")


def test_problems_are_those_of_all_in_order() -> None:
    found = problems([seam("Gone"), seam("Base"), seam("LIMIT", ())])
    assert found == ["some_engine has no Gone", "some_engine:LIMIT is no function any more"]


def test_what_is_found_is_not_bound_or_called() -> None:
    assert isinstance(find(seam("Base.make")), classmethod)
    assert isinstance(find(seam("Base.asked")), property)
