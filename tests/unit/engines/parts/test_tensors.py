"""Finding tensors by walking: order, names, what is walked into and what is not."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundry.engines.common import tensors
from foundry.engines.common.tensors import Walker

# Machines may be busy.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class T:
    """A tensor; equal to every other one, as tensors that compare element by element are of no use as keys."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("tensors are not compared")

    def __bool__(self) -> bool:
        raise AssertionError("tensors have no truth value")


def walk(root: Any, wanted: Callable[[str], bool] = lambda module: module == __name__) -> list[tuple[str, Any]]:
    return list(Walker(lambda value: isinstance(value, T), wanted).tensors("r", root))


def names(root: Any) -> list[str]:
    return [name for name, _ in walk(root)]


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("__weakref__", "a", "b", "never")

    def __init__(self) -> None:
        self.b, self.a = T(), T()


class OneSlot(Slotted):
    __slots__ = "only"

    def __init__(self) -> None:
        super().__init__()
        self.only = T()


class Both(Slotted):
    """Slots of a base, a table of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.own = T()


@dataclass
class Data:
    shared: ClassVar[T] = T()
    first: Any = None
    second: list[Any] = field(default_factory=list)


class Lazy:
    """Properties are not asked."""

    def __init__(self) -> None:
        self._made = T()

    @property
    def expensive(self) -> Any:
        raise AssertionError("a property was asked")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was looked up")


def test_a_root_that_is_a_tensor() -> None:
    t = T()
    assert [(name, found is t) for name, found in walk(t)] == [("r", True)]


def test_attributes_in_the_order_in_which_they_were_set_breadth_first() -> None:
    root = Plain(z=Plain(deep=T()), b=T(), a=T())
    assert names(root) == ["r.b", "r.a", "r.z.deep"]


def test_containers() -> None:
    pair = namedtuple("pair", "x y")
    root = Plain(
        list=[T(), [T()]], tuple=(T(),), deque=deque([T()]), named=pair(T(), 1), map={"k": T(), 3: T(), (1, 2): T()}
    )
    assert names(root) == [
        "r.list[0]",
        "r.tuple[0]",
        "r.deque[0]",
        "r.named[0]",
        "r.map['k']",
        "r.map[3]",
        "r.map[#2]",
        "r.list[1][0]",
    ]


def test_mappings_of_other_kinds() -> None:
    root = Plain(a=OrderedDict(x=T()), b=MappingProxyType({"y": T()}))
    assert names(root) == ["r.a['x']", "r.b['y']"]


def test_keys_that_have_no_name_of_their_own_are_numbered() -> None:
    """The default text of an object has its address, which differs from process to process."""
    assert names({object(): T(), Plain(): T(), "s": T(), b"b": T(), None: T(), 1.5: T(), True: T()}) == [
        "r[#0]",
        "r[#1]",
        "r['s']",
        "r[b'b']",
        "r[#4]",
        "r[1.5]",
        "r[True]",
    ]


def test_sets_have_no_order_and_are_left_out() -> None:
    assert names(Plain(a={1, 2}, b=frozenset([Plain(t=T())]))) == []


def test_slots() -> None:
    assert names(Slotted()) == ["r.a", "r.b"]
    assert names(OneSlot()) == ["r.only", "r.a", "r.b"]
    assert names(Both()) == ["r.own", "r.a", "r.b"]


def test_dataclasses() -> None:
    assert names(Data(T(), [T()])) == ["r.first", "r.second[0]"]


def test_properties_and_lookups_are_not_asked() -> None:
    assert names(Plain(lazy=Lazy())) == ["r.lazy._made"]


def test_foreign_objects_are_not_walked_into() -> None:
    foreign = SimpleNamespace(t=T())
    assert names(Plain(foreign=foreign, method=functools.partial(print, T()), kind=Data)) == []
    # By the module of a base class, too.
    derived = type("Derived", (Plain,), {"__module__": "elsewhere"})
    assert names(Plain(d=derived(t=T()))) == ["r.d.t"]
    # What a list or mapping of a foreign object holds is reached only through somebody who is wanted.
    assert names([foreign, Plain(t=T())]) == ["r[1].t"]


def test_everything_once_by_its_shortest_name() -> None:
    shared, t = Plain(u=T()), T()
    root = Plain(long=Plain(inner=Plain(t=t, shared=shared)), shared=shared, again=shared)
    assert names(root) == ["r.shared.u", "r.long.inner.t"]


def test_cycles_end() -> None:
    root = Plain(t=T())
    root.__dict__["me"] = root
    root.__dict__["list"] = [root]
    root.__dict__["list"].append(root.__dict__["list"])
    assert names(root) == ["r.t"]


def test_two_tensor_objects_are_two_even_if_they_are_views() -> None:
    t, u = T(), T()
    assert names([t, u, t]) == ["r[0]", "r[1]"]


def test_weak_references_are_not_followed() -> None:
    held = Plain(t=T())
    assert names(Plain(ref=weakref.ref(held))) == []


def test_an_object_that_is_made_while_walking_is_not_mistaken_for_another() -> None:
    """Mappings may make their values; ids are only unique among objects that live."""

    class Making(dict[str, Any]):
        def items(self) -> Any:
            depth = self["depth"]
            return [("tensor", T()), ("next", Making(depth=depth - 1))] if depth else []

    assert len(names(Making(depth=100))) == 100


def test_a_walk_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "MAX_OBJECTS", 50)
    assert len(names([T() for _ in range(49)])) == 49
    with pytest.raises(RuntimeError, match=r"^r reaches more than 50 objects, the last one is r\[49\]$"):
        names([T() for _ in range(51)])


trees = st.recursive(
    st.sampled_from(["tensor", 1, "text", None]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: ("list", items))
        | st.lists(inner, max_size=4).map(lambda items: ("object", items))
        | st.lists(inner, max_size=4).map(lambda items: ("map", items))
    ),
    max_leaves=30,
)


def build(tree: Any) -> Any:
    if tree == "tensor":
        return T()
    if not isinstance(tree, tuple):
        return tree
    kind, items = tree
    made = [build(item) for item in items]
    if kind == "list":
        return made
    return Plain(**{f"a{i}": x for i, x in enumerate(made)}) if kind == "object" else dict(enumerate(made))


def count(tree: Any) -> int:
    return int(tree == "tensor") if not isinstance(tree, tuple) else sum(count(item) for item in tree[1])


@UNHURRIED
@given(trees)
def test_all_are_found_under_distinct_names_the_same_in_every_process(tree: Any) -> None:
    first, second = walk(build(tree)), walk(build(tree))
    assert [name for name, _ in first] == [name for name, _ in second]
    assert len({name for name, _ in first}) == len(first) == count(tree)


@UNHURRIED
@given(trees)
def test_a_name_leads_to_its_tensor(tree: Any) -> None:
    root = build(tree)
    for name, found in walk(root):
        assert eval(name, {"r": root}) is found
