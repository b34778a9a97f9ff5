"""Outputs as trees: any nesting there and back, aliasing kept, hostile text refused."""

from __future__ import annotations

import collections
import enum
import json
import math
from typing import Any

import fake_core
import pytest
from fake_framework import FakeTensor, Framework
from hypothesis import given
from hypothesis import strategies as st
from session_world import World

import foundry
from foundry import outputs


class Leaf:
    """Stands for a tensor."""


Pair = collections.namedtuple("Pair", ["first", "tensor"])

plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.floats(), st.complex_numbers(allow_nan=False)
)
keys = st.one_of(st.text(max_size=3), st.integers(), st.none(), st.tuples(st.integers(), st.text(max_size=2)))
leaves = st.builds(Leaf)
nested = st.recursive(
    st.one_of(plain, leaves),
    lambda child: st.one_of(
        st.lists(child, max_size=4),
        st.lists(child, max_size=4).map(tuple),
        st.dictionaries(keys, child, max_size=4),
        st.builds(Pair, child, child),
    ),
    max_leaves=20,
)


def round_trip(value: Any) -> Any:
    encoded = outputs.Encoded(value, lambda each: isinstance(each, Leaf))
    numbers = [100 + i for i in range(len(encoded.tensors))]
    return outputs.loads(encoded.dumps(numbers), lambda index: encoded.tensors[index - 100], "graph 'g'")


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Leaf) or a is None:
        return a is b
    if isinstance(a, float):
        return isinstance(b, float) and (a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b)
    if isinstance(a, Pair):
        return type(b).__name__ == "Pair" and b._fields == a._fields and same(tuple(a), tuple(b))
    if type(a) is not type(b) or isinstance(a, (str, int, complex)):
        return type(a) is type(b) and bool(a == b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


@given(nested)
def test_any_nesting_comes_back(value: Any) -> None:
    assert same(value, round_trip(value))


def test_one_tensor_in_two_places_is_one_tensor() -> None:
    leaf = Leaf()
    back = round_trip({"a": leaf, "b": [leaf, Leaf()]})
    assert back["a"] is back["b"][0] and back["a"] is not back["b"][1]


def test_named_tuple_has_its_fields() -> None:
    back = round_trip(Pair(1, Leaf()))
    assert back.first == 1 and isinstance(back.tensor, Leaf) and back[0] == 1


class Colour(enum.IntEnum):
    RED = 1


class Secret(tuple):  # type: ignore[type-arg]
    """A tuple whose items have no names."""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [1, object()]}, r"outputs\['a'\]\[1\] is a builtins.object"),
        ([Colour.RED], r"outputs\[0\] is a .*Colour"),
        (Pair(b"x", None), r"outputs.first is a builtins.bytes"),
        ({1, 2}, "outputs is a builtins.set"),
        (collections.OrderedDict(), "OrderedDict"),
        (Secret([1]), "without a name"),
        ({Leaf(): 1}, "a tensor as a key"),
    ],
)
def test_what_cannot_be_kept_is_named(value: Any, words: str) -> None:
    with pytest.raises(foundry.FoundryError, match=words) as caught:
        outputs.Encoded(value, lambda each: isinstance(each, Leaf))
    assert caught.value.kind == "unsupported"


def test_list_that_contains_itself() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(foundry.FoundryError, match="nested more than"):
        outputs.Encoded(value, lambda each: False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '["unknown"]',
        '["tensor"]',
        '["tensor", -1]',
        '["tensor", true]',
        '["tensor", 99]',
        '["value", [1]]',
        '["value", 1.5]',
        '["float", "x"]',
        '["complex", "0x1p0"]',
        '["dict", [["none"]]]',
        '["dict", [["list"], ["none"]]]',
        '["named", "P", ["a b"], ["none"]]',
        '["named", "__import__(\'os\')", ["a"], ["none"]]',
        '["named", "P", ["a"]]',
        '["none", 1]',
        "[" * 100_000,
        json.dumps(["list"] * 3),
    ],
)
def test_hostile_text_is_one_clear_error(text: str) -> None:
    with pytest.raises(foundry.FoundryError, match="graph 'g'") as caught:
        outputs.loads(text, lambda index: [][index], "graph 'g'")  # type: ignore[misc]
    assert caught.value.kind == "corrupt"


def test_deep_text_is_refused() -> None:
    text = '["list",' * 70 + '["none"]' + "]" * 70
    with pytest.raises(foundry.FoundryError, match="nested more than"):
        outputs.loads(text, lambda index: None, "graph 'g'")


# ---- through a session


def run(world: World, mode: str) -> tuple[Any, Framework, FakeTensor]:
    fake_core.new_process(hook=mode == "save")
    framework = Framework()
    with world.session(framework, mode) as s:
        with s.phase("inputs"):
            x = s.register("x", framework.tensor(bytes(range(32))), mutable=True)

        def forward() -> Any:
            whole = framework.add(x, x)
            return {"whole": whole, "tail": whole[16:], "view": x[4:8], "n": 3, "again": whole, "other": [x, None]}

        graph = s.graph("g", forward)
    return graph, framework, x


def test_aliasing_is_kept_across_processes(world: World) -> None:
    run(world, "save")
    graph, framework, x = run(world, "load")
    out = graph.outputs
    assert graph.source == "restored" and out["n"] == 3 and out["other"][1] is None
    assert out["again"] is out["whole"]
    assert out["tail"].storage is out["whole"].storage and out["tail"].address == out["whole"].address + 16
    # An output that is a view of an anchor aliases the anchor.
    assert out["view"].storage is x.storage and out["view"].address == x.address + 4
    graph.replay()
    assert out["whole"].data == bytes(2 * i for i in range(32))
    x.data = bytes([9] * 32)
    assert out["view"].data == bytes([9] * 4)
    assert graph.outputs is out


def test_outputs_keep_the_loader_alive(world: World) -> None:
    run(world, "save")
    graph, framework, x = run(world, "load")
    whole = graph.outputs["whole"]
    assert isinstance(whole.storage.owner, fake_core.Loader)
    # Outputs of a re-seated or ordinary anchor belong to the anchor's own storage.
    assert graph.outputs["view"].storage.owner is None


def test_outputs_before_any_replay_finish_the_session(world: World) -> None:
    run(world, "save")
    fake_core.new_process()
    framework = Framework()
    with world.session(framework, "load") as s:
        with s.phase("inputs"):
            s.register("x", framework.tensor(bytes(32)), mutable=True)
        graph = s.graph("g", lambda: None)
        assert s.report.outcome == "loading"
        assert set(graph.outputs) == {"whole", "tail", "view", "n", "again", "other"}
        assert s.report.outcome == "restored"
